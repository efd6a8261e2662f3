// A runner without a model, for scheduler tests. Its KV cache holds a number per token and cache group, made from the
// token and the numbers of the visible tokens before it; the next token is made from all visible numbers. They are read
// through the block tables, so that a wrong block, a missing copy, a premature cache hit or a block that was freed too
// early changes the text. With separate kinds, batches of prompts make other numbers than batches of generated tokens.
//
// Batches are packed by launch() and computed as late as possible: by wait(), or by compute().
#pragma once

#include "engine/serving/batch.hpp"
#include "engine/serving/cache_group.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::engine::test {

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    std::uint64_t mix = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6))) * 0xbf58476d1ce4e5b9u;
    return mix ^ (mix >> 29);
}

inline int token_from(std::uint64_t all, std::uint64_t seed, int vocabulary) {
    return static_cast<int>(mixed(all, seed) % static_cast<std::uint64_t>(vocabulary));
}

// The entries as "id: first+count", with * if a token is sampled, and [n] if n draft tokens are allowed.
inline std::string text_of(const batch& work) {
    std::string text;
    for (const batch_entry& entry : work.entries) {
        text += (text.empty() ? "" : ", ") + std::to_string(entry.sequence->id) + ": " + std::to_string(entry.first) +
                "+" + std::to_string(entry.count) + (entry.samples ? "*" : "") +
                (entry.max_draft > 0 ? "[" + std::to_string(entry.max_draft) + "]" : "");
    }
    return text;
}

// The number of a token.
inline std::uint64_t seed_of(int token, bool other_kind) {
    return static_cast<std::uint64_t>(token) + (other_kind ? std::uint64_t{1} << 40 : 0);
}

// The numbers of a sequence in one cache group.
class visible_numbers {
  public:
    explicit visible_numbers(int window) : window_(window) {}

    // The number of the next token, from those that it sees.
    std::uint64_t next(std::uint64_t seed) const {
        if (window_ == 0) return mixed(numbers_.empty() ? 0 : numbers_.back(), seed);
        return mixed(sum(window_ - 1), seed);
    }
    void push(std::uint64_t number) {
        numbers_.push_back(number);
        all_ = mixed(all_, number);
    }
    // Of what the last token sees.
    std::uint64_t last_sum() const { return window_ == 0 ? all_ : sum(window_); }

  private:
    std::uint64_t sum(int last) const {
        std::uint64_t found = 0;
        for (auto i = numbers_.size() - std::min(numbers_.size(), static_cast<std::size_t>(last)); i < numbers_.size();
             ++i)
            found = mixed(found, numbers_[i]);
        return found;
    }

    int window_;
    std::uint64_t all_ = 0;
    std::vector<std::uint64_t> numbers_;
};

// The continuation of these tokens alone, with cache groups of these windows; from a given position on, tokens count as
// generated.
inline std::vector<int> text_alone(std::vector<int> tokens, std::uint64_t seed, int vocabulary, int max_total_tokens,
                                   std::span<const int> eos_tokens, int other_kind_from = INT_MAX,
                                   const std::vector<int>& windows = {0}) {
    std::vector<visible_numbers> groups(windows.begin(), windows.end());
    std::size_t seen = 0;
    while (static_cast<int>(tokens.size()) < max_total_tokens) {
        for (; seen < tokens.size(); ++seen) {
            for (visible_numbers& each : groups)
                each.push(each.next(seed_of(tokens[seen], static_cast<int>(seen) >= other_kind_from)));
        }
        std::uint64_t all = 0;
        for (const visible_numbers& each : groups) all = mixed(all, each.last_sum());
        tokens.push_back(token_from(all, seed, vocabulary));
        if (std::ranges::find(eos_tokens, tokens.back()) != eos_tokens.end()) break;
    }
    return tokens;
}

class fake_runner : public block_store {
  public:
    // With slots of host memory for each group.
    fake_runner(const std::vector<cache_group>& groups, int block_size, int vocabulary, bool kinds_differ = false,
                const std::vector<int>& slots = {})
        : block_size_(block_size), vocabulary_(vocabulary), kinds_differ_(kinds_differ) {
        for (const cache_group& each : groups) {
            windows_.push_back(each.window);
            caches_.emplace_back(static_cast<std::size_t>(each.blocks * block_size), 0xdead);
        }
        for (const int count : slots) slots_.emplace_back(static_cast<std::size_t>(count * block_size), 0xfade);
    }
    fake_runner(int blocks, int block_size, int vocabulary, bool kinds_differ = false)
        : fake_runner(std::vector{cache_group{.blocks = blocks}}, block_size, vocabulary, kinds_differ) {}

    std::vector<int> run(const batch& work) {
        launch(work);
        return wait();
    }

    void launch(const batch& work) {
        if (in_flight_.size() == 2) FAIL("three batches are in flight");
        in_flight_.push_back({&work, pack_batch(work, block_size_, static_cast<int>(caches_.size()))});
    }
    std::vector<int> wait() {
        compute(in_flight_.front());
        std::vector<int> tokens = *std::move(in_flight_.front().tokens);
        in_flight_.pop_front();
        return tokens;
    }
    // All that is in flight.
    void compute() {
        for (flight& each : in_flight_) compute(each);
    }
    int in_flight() const { return static_cast<int>(in_flight_.size()); }

    std::span<std::byte> slot(int group, int number) override {
        return std::as_writable_bytes(std::span(slots_[static_cast<std::size_t>(group)])
                                          .subspan(place(number, 0), static_cast<std::size_t>(block_size_)));
    }

  private:
    struct flight {
        const batch* work;
        packed_batch packed;
        std::optional<std::vector<int>> tokens{};
    };

    void compute(flight& now) {
        if (now.tokens) return;
        for (std::size_t i = 0; i < now.packed.input_rows.size(); ++i) {
            int& id = now.packed.input_ids[i];
            const int row = now.packed.input_rows[i];
            if ((id == unknown_token) != (row >= 0)) FAIL("a token is known, or not");
            if (row >= 0) id = last_tokens_.at(static_cast<std::size_t>(row));
        }
        for (const int id : now.packed.input_ids) {
            if (id < 0) FAIL("a token is not known");
        }
        last_tokens_ = compute(*now.work, now.packed);
        now.tokens = last_tokens_;
    }

    std::vector<int> compute(const batch& work, const packed_batch& packed) {
        const bool generated = kinds_differ_ && work.generated() > 0;
        if (generated && work.generated() != static_cast<int>(work.entries.size())) FAIL("a batch has both kinds");
        move(work.moves);
        std::vector<std::uint64_t> sums(packed.logits_indices.size());
        for (std::size_t group = 0; group < caches_.size(); ++group) run_group(group, work, packed, generated, sums);
        std::vector<int> tokens;
        for (std::size_t i = 0; i < work.entries.size(); ++i) {
            for (int left = work.entries[i].num_samples(); left > 0; --left) {
                const std::size_t sample = tokens.size();
                if (packed.logits_indices[sample] != packed.cu_seqlens_q[i + 1] - left)
                    FAIL("the wrong row is sampled");
                tokens.push_back(token_from(sums[sample], work.entries[i].sequence->sampling.seed, vocabulary_));
            }
        }
        return tokens;
    }

    // Saves first, then loads, each list in reverse: its order must not matter.
    void move(const block_moves& moves) {
        std::set<std::pair<int, int>> slots, blocks;
        for (auto it = moves.saves.rbegin(); it != moves.saves.rend(); ++it) {
            if (!slots.emplace(it->group, it->slot).second) FAIL("a slot is written twice");
            std::ranges::copy(block(it->group, it->block), slot(it->group, it->slot).begin());
        }
        for (auto it = moves.loads.rbegin(); it != moves.loads.rend(); ++it) {
            if (!blocks.emplace(it->group, it->block).second) FAIL("a block is loaded twice");
            const std::span<const std::byte> from = it->data ? std::span<const std::byte>(*it->data)
                                                             : std::span<const std::byte>(slot(it->group, it->slot));
            const std::span<std::byte> to = block(it->group, it->block);
            if (from.size() != to.size()) FAIL("a block has another size");
            std::ranges::copy(from, to.begin());
        }
    }

    std::span<std::byte> block(int group, int number) {
        return std::as_writable_bytes(std::span(caches_[static_cast<std::size_t>(group)])
                                          .subspan(place(number, 0), static_cast<std::size_t>(block_size_)));
    }

    using writes = std::vector<std::pair<std::size_t, std::uint64_t>>;  // visible only after the batch

    void run_group(std::size_t group, const batch& work, const packed_batch& packed, bool generated,
                   std::vector<std::uint64_t>& sums) {
        std::vector<std::uint64_t>& cache = caches_[group];
        writes written;
        for (const block_copy& copy : work.copies) {
            for (int row = 0; row < block_size_ && static_cast<std::size_t>(copy.group) == group; ++row)
                written.emplace_back(place(copy.to, row), cache[place(copy.from, row)]);
        }
        store(cache, written);
        std::size_t sample = 0;
        for (std::size_t i = 0; i < packed.seqused_k.size(); ++i) {
            const int start = packed.cu_seqlens_q[i];
            const int first = packed.seqused_k[i] - (packed.cu_seqlens_q[i + 1] - start);
            const auto cell = [&](int position) {
                const std::size_t table =
                    (group * packed.seqused_k.size() + i) * static_cast<std::size_t>(packed.max_blocks_per_seq);
                return place(packed.block_tables[table + static_cast<std::size_t>(position / block_size_)],
                             position % block_size_);
            };
            visible_numbers numbers(windows_[group]);
            const int behind = windows_[group] == 0 ? 0 : std::max(first - windows_[group] + 1, 0);
            for (int position = behind; position < first; ++position) numbers.push(cache[cell(position)]);
            for (int position = first; position < packed.seqused_k[i]; ++position) {
                const int token = packed.input_ids[static_cast<std::size_t>(start + position - first)];
                const std::uint64_t number = numbers.next(seed_of(token, generated));
                numbers.push(number);
                written.emplace_back(cell(position), number);
                if (packed.seqused_k[i] - position > work.entries[i].num_samples()) continue;
                sums[sample] = mixed(sums[sample], numbers.last_sum());
                ++sample;
            }
        }
        store(cache, written);
    }

    static void store(std::vector<std::uint64_t>& cache, writes& written) {
        std::ranges::sort(written);
        const auto same_place = [](const auto& a, const auto& b) { return a.first == b.first; };
        if (std::ranges::adjacent_find(written, same_place) != written.end()) FAIL("a place is written twice");
        for (const auto& [cell, number] : written) cache[cell] = number;
        written.clear();
    }
    std::size_t place(int block, int row) const { return static_cast<std::size_t>(block * block_size_ + row); }

    int block_size_, vocabulary_;
    bool kinds_differ_;
    std::vector<int> windows_;
    std::vector<std::vector<std::uint64_t>> caches_, slots_;  // of each group
    std::deque<flight> in_flight_;
    std::vector<int> last_tokens_;  // of the batch that was computed last
};

}  // namespace imbrex::engine::test
