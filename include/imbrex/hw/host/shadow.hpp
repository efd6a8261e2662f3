// Shadow memory: the history of every byte of a block's shared memory, its last writer and the readers since. Kernels
// access memory by tiles, so neighbouring bytes nearly always share their history. It is stored by intervals, exact to
// the byte.
#pragma once

#include <imbrex/core/source.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace imbrex::hw {

struct simulated_warp;

// One access in the history.
struct access {
    const simulated_warp* by = nullptr;  // the scope that made or issued it
    int actor = -1;                      // whose clock ticked: the scope's own, a barrier's or a group's
    std::uint32_t tick = 0;
    bool async_proxy = false;     // through the async proxy: TMA or wgmma
    bool deferred = false;        // issued, and done later
    int stage = -1;               // of the pipeline the bytes belong to
    std::uint64_t partition = 0;  // distribution over the scope's warps; equal means each warp has its own bytes
    const char* what = "";
    source where{};
    int atomic_bytes = 0;      // of an atomic operation
    bool dsmem_store = false;  // of registers to another block
};

struct byte_history {
    bool written = false;
    access write;
    std::vector<access> reads;  // since that write, the latest of each actor

    void remember_read(const access& read) {
        for (access& old : reads) {
            if (old.actor == read.actor && old.partition == read.partition) {
                old = read;
                return;
            }
        }
        reads.push_back(read);
    }
    void forget() {
        written = false;
        reads.clear();
    }
    void remember_write(const access& by) {
        written = true;
        write = by;
        reads.clear();
    }
};

class shadow_memory {
  public:
    explicit shadow_memory(int bytes) {
        if (!spare().empty()) {
            in_ = std::move(spare().back());
            spare().pop_back();
        }
        in_.unused.clear();
        in_.used = 0;
        in_.pages.resize(static_cast<std::size_t>(bytes / page_bytes + 1));
        for (std::size_t i = 0; i < in_.pages.size(); ++i) {
            in_.pages[i].assign(1, {static_cast<int>(i) * page_bytes, new_history()});
            history_of(in_.pages[i][0]).forget();
        }
    }
    shadow_memory(const shadow_memory&) = delete;
    shadow_memory& operator=(const shadow_memory&) = delete;
    ~shadow_memory() { spare().push_back(std::move(in_)); }

    // Calls f(history) for each interval of [begin, end), split at these bounds.
    template <class F>
    void visit(int begin, int end, F f) {
        for_each_page(begin, end, [&](page& one, int from, int to) {
            const std::size_t first = cut(one, from), last = cut(one, to);
            for (std::size_t i = first; i < last; ++i) f(history_of(one[i]));
        });
    }

    // Calls f(history) for each interval that [begin, end) overlaps, then records a write: the range has one history.
    template <class F>
    void write(int begin, int end, const access& made, F f) {
        for_each_page(begin, end, [&](page& one, int from, int to) {
            for (std::size_t i = holding(one, from); i < one.size() && one[i].begin < to; ++i) {
                f(std::as_const(history_of(one[i])));
            }
        });
        for_each_page(begin, end, [&](page& one, int from, int to) {
            const std::size_t first = cut(one, from), last = cut(one, to);
            history_of(one[first]).remember_write(made);
            for (std::size_t i = first + 1; i < last; ++i) in_.unused.push_back(one[i].history);
            const auto at = one.begin() + static_cast<std::ptrdiff_t>(first);
            one.erase(at + 1, at + static_cast<std::ptrdiff_t>(last - first));
        });
    }

  private:
    // An interval ends where the next begins, or with its page. Pages keep searches and insertions short.
    struct interval {
        int begin;
        std::uint32_t history;
    };
    using page = std::vector<interval>;
    static constexpr int page_bytes = 4096;
    // Kernels cut memory into thousands of intervals, block after block, so histories are reused with their vectors.
    struct storage {
        std::vector<page> pages;
        std::vector<byte_history> histories;
        std::vector<std::uint32_t> unused;  // of the first `used` histories
        std::uint32_t used = 0;
    };
    static std::vector<storage>& spare() {
        thread_local std::vector<storage> all;
        return all;
    }

    // Calls f(page, from, to) for the part of [begin, end) in each page.
    template <class F>
    void for_each_page(int begin, int end, F f) {
        for (int from = begin; from < end;) {
            const int number = from / page_bytes, to = std::min(end, (number + 1) * page_bytes);
            f(in_.pages[static_cast<std::size_t>(number)], from, to);
            from = to;
        }
    }
    byte_history& history_of(const interval& one) { return in_.histories[one.history]; }
    // A binary search without branches, which would often be mispredicted.
    static std::size_t holding(const page& one, int at) {
        std::size_t found = 0;
        for (std::size_t left = one.size(); left > 1;) {
            const std::size_t half = left / 2;
            found += one[found + half].begin <= at ? half : 0;
            left -= half;
        }
        return found;
    }
    std::uint32_t new_history() {
        if (!in_.unused.empty()) {
            const std::uint32_t last = in_.unused.back();
            in_.unused.pop_back();
            return last;
        }
        if (in_.used == in_.histories.size()) in_.histories.emplace_back();
        return in_.used++;
    }
    // The interval of the page that begins there; the number of intervals if that is the end of the page.
    std::size_t cut(page& one, int at) {
        if (at == one[0].begin + page_bytes) return one.size();
        const std::size_t i = holding(one, at);
        if (one[i].begin == at) return i;
        const std::uint32_t made = new_history();
        in_.histories[made] = history_of(one[i]);
        one.insert(one.begin() + static_cast<std::ptrdiff_t>(i) + 1, {at, made});
        return i + 1;
    }

    storage in_;
};

}  // namespace imbrex::hw
