// A runner without a model, for scheduler tests. Its KV cache holds a number per token, made from the token and the
// previous number; the next token is made from all numbers, read through the block table. A wrong block, a missing copy
// or a premature cache hit changes the text. With separate kinds, batches of prompts make other numbers than batches of
// generated tokens.
#pragma once

#include "engine/serving/batch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
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

// The entries as "id: first+count", with * if a token is sampled.
inline std::string text_of(const batch& work) {
    std::string text;
    for (const batch_entry& entry : work.entries) {
        text += (text.empty() ? "" : ", ") + std::to_string(entry.sequence->id) + ": " + std::to_string(entry.first) +
                "+" + std::to_string(entry.count) + (entry.samples ? "*" : "");
    }
    return text;
}

// The number of a token.
inline std::uint64_t seed_of(int token, bool other_kind) {
    return static_cast<std::uint64_t>(token) + (other_kind ? std::uint64_t{1} << 40 : 0);
}

// The continuation of these tokens alone; from a given position on, tokens count as generated.
inline std::vector<int> text_alone(std::vector<int> tokens, std::uint64_t seed, int vocabulary, int max_total_tokens,
                                   std::span<const int> eos_tokens, int other_kind_from = INT_MAX) {
    std::uint64_t number = 0, all = 0;
    std::size_t seen = 0;
    while (static_cast<int>(tokens.size()) < max_total_tokens) {
        for (; seen < tokens.size(); ++seen) {
            number = mixed(number, seed_of(tokens[seen], static_cast<int>(seen) >= other_kind_from));
            all = mixed(all, number);
        }
        tokens.push_back(token_from(all, seed, vocabulary));
        if (std::ranges::find(eos_tokens, tokens.back()) != eos_tokens.end()) break;
    }
    return tokens;
}

class fake_runner {
  public:
    fake_runner(int blocks, int block_size, int vocabulary, bool kinds_differ = false)
        : block_size_(block_size),
          vocabulary_(vocabulary),
          kinds_differ_(kinds_differ),
          cache_(static_cast<std::size_t>(blocks * block_size), 0xdead) {}

    std::vector<int> run(const batch& work) {
        const packed_batch packed = pack_batch(work, block_size_);
        const bool generated = kinds_differ_ && work.generated() > 0;
        if (generated && work.generated() != static_cast<int>(work.entries.size())) FAIL("a batch has both kinds");
        std::vector<std::pair<std::size_t, std::uint64_t>> written;  // visible only after the batch
        for (const block_copy& copy : work.copies) {
            for (int row = 0; row < block_size_; ++row)
                written.emplace_back(place(copy.to, row), cache_[place(copy.from, row)]);
        }
        store(written);
        std::vector<int> tokens;
        std::size_t sampled = 0;
        for (std::size_t i = 0; i < packed.seqused_k.size(); ++i) {
            const int start = packed.cu_seqlens_q[i];
            const int count = packed.cu_seqlens_q[i + 1] - start;
            const int first = packed.seqused_k[i] - count;
            std::vector<std::uint64_t> numbers;  // of the complete sequence
            for (int position = 0; position < packed.seqused_k[i]; ++position) {
                const std::size_t block = i * static_cast<std::size_t>(packed.max_blocks_per_seq) +
                                          static_cast<std::size_t>(position / block_size_);
                const std::size_t cell = place(packed.block_tables[block], position % block_size_);
                if (position < first) {
                    numbers.push_back(cache_[cell]);
                    continue;
                }
                const int token = packed.input_ids[static_cast<std::size_t>(start + position - first)];
                numbers.push_back(mixed(position == 0 ? 0 : numbers.back(), seed_of(token, generated)));
                written.emplace_back(cell, numbers.back());
            }
            if (!work.entries[i].samples) continue;
            if (packed.logits_indices[sampled++] != packed.cu_seqlens_q[i + 1] - 1) FAIL("the wrong row is sampled");
            std::uint64_t all = 0;
            for (const std::uint64_t number : numbers) all = mixed(all, number);
            tokens.push_back(token_from(all, work.entries[i].sequence->sampling.seed, vocabulary_));
        }
        store(written);
        return tokens;
    }

  private:
    void store(std::vector<std::pair<std::size_t, std::uint64_t>>& written) {
        std::ranges::sort(written);
        const auto same_place = [](const auto& a, const auto& b) { return a.first == b.first; };
        if (std::ranges::adjacent_find(written, same_place) != written.end()) FAIL("a place is written twice");
        for (const auto& [cell, number] : written) cache_[cell] = number;
        written.clear();
    }
    std::size_t place(int block, int row) const { return static_cast<std::size_t>(block * block_size_ + row); }

    int block_size_, vocabulary_;
    bool kinds_differ_;
    std::vector<std::uint64_t> cache_;
};

}  // namespace imbrex::engine::test
