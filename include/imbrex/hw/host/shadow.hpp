// Shadow memory: the history of every byte of a block's shared memory, its last writer and the readers since. Kernels
// access memory by tiles, so neighbouring bytes nearly always share their history. It is stored by intervals, exact to
// the byte.
#pragma once

#include <imbrex/core/source.hpp>

#include <cstdint>
#include <map>
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
    void remember_write(const access& by) {
        written = true;
        write = by;
        reads.clear();
    }
};

class shadow_memory {
  public:
    explicit shadow_memory(int bytes) {
        histories_[0];
        end_ = bytes;
    }

    // Calls f(history) for each interval of [begin, end), split at these bounds.
    template <class F>
    void visit(int begin, int end, F f) {
        auto first = cut(begin);
        const auto last = end < end_ ? cut(end) : histories_.end();
        for (; first != last; ++first) f(first->second);
    }

  private:
    std::map<int, byte_history>::iterator cut(int at) {
        auto next = histories_.lower_bound(at);
        if (next != histories_.end() && next->first == at) return next;
        auto before = next;
        --before;
        return histories_.emplace_hint(next, at, before->second);
    }
    std::map<int, byte_history> histories_;
    int end_;
};

}  // namespace imbrex::hw
