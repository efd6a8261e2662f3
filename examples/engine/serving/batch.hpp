// What a runner is given in one step: for each sequence some tokens to compute, and copies of blocks to make before anything is
// written. It gives back a token for each entry that samples, in their order.
#pragma once

#include "engine/serving/block_manager.hpp"
#include "engine/serving/sequence.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

namespace imbrex::engine {

struct batch_entry {
    std::shared_ptr<const imbrex::engine::sequence> sequence;  // its tokens, blocks and sampling options
    int first = 0;                                             // the position of the first token to compute
    int count = 0;
    bool samples = false;  // the last token's logits give the next token; otherwise more of the prompt is to come
};

struct batch {
    std::vector<block_copy> copies;  // no block is both read and written by them: they may all be made at once
    std::vector<batch_entry> entries;

    int tokens() const {
        int all = 0;
        for (const batch_entry& entry : entries) all += entry.count;
        return all;
    }
    int samples() const { return static_cast<int>(std::ranges::count(entries, true, &batch_entry::samples)); }
    // Entries whose tokens were all generated.
    int generated() const {
        return static_cast<int>(std::ranges::count_if(
            entries, [](const batch_entry& one) { return one.first >= one.sequence->num_prompt_tokens; }));
    }
};

// The same as packed, as kernels over pages read them: rows of all entries packed one after the other.
struct packed_batch {
    std::vector<int> input_ids;       // a row each
    std::vector<int> cu_seqlens_q;    // entry i has rows [cu_seqlens_q[i], cu_seqlens_q[i + 1])
    std::vector<int> seqused_k;       // tokens in the cache with those of this batch, by entry
    std::vector<int> block_tables;    // [entry, max_blocks_per_seq]: their blocks; behind the last there is block 0
    int max_blocks_per_seq = 0;       // a power of two: sequences that grow have few different ones
    std::vector<int> logits_indices;  // the rows whose logits are needed
};

inline int padded_blocks_per_seq(int blocks) {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(blocks)));
}

inline packed_batch pack_batch(const batch& all, int block_size) {
    packed_batch packed;
    const auto width = [&](const batch_entry& entry) {
        return (entry.first + entry.count + block_size - 1) / block_size;
    };
    for (const batch_entry& entry : all.entries)
        packed.max_blocks_per_seq = std::max(packed.max_blocks_per_seq, width(entry));
    packed.max_blocks_per_seq = padded_blocks_per_seq(packed.max_blocks_per_seq);
    packed.cu_seqlens_q.push_back(0);
    for (const batch_entry& entry : all.entries) {
        const int last = entry.first + entry.count;
        const auto tokens = entry.sequence->tokens.begin();
        const auto blocks = entry.sequence->block_table.begin();
        packed.input_ids.insert(packed.input_ids.end(), tokens + entry.first, tokens + last);
        packed.cu_seqlens_q.push_back(static_cast<int>(packed.input_ids.size()));
        packed.seqused_k.push_back(last);
        packed.block_tables.insert(packed.block_tables.end(), blocks, blocks + width(entry));
        packed.block_tables.resize(packed.seqused_k.size() * static_cast<std::size_t>(packed.max_blocks_per_seq), 0);
        if (entry.samples) packed.logits_indices.push_back(packed.cu_seqlens_q.back() - 1);
    }
    return packed;
}

}  // namespace imbrex::engine
