// The input of a runner for one step: the tokens to compute for each sequence, and the moves of blocks to make before
// anything is written (block_moves.hpp). The runner returns one token per sampled position, in order of the
// entries.
#pragma once

#include "engine/serving/block_moves.hpp"
#include "engine/serving/sequence.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace imbrex::engine {

struct batch_entry {
    std::shared_ptr<const imbrex::engine::sequence> sequence;  // its tokens, blocks and sampling parameters
    int first = 0;                                             // the position of the first token to compute
    int count = 0;
    bool samples =
        false;  // sample from the last token's logits; false for all but the last chunk of a prompt (chunked prefill)
    // Speculative decoding: draft tokens behind the last token of the sequence, at most max_draft. They are computed as
    // well, and a token is sampled from the logits of each, as if the draft before it were part of the sequence.
    std::vector<int> draft{};
    int max_draft = 0;
    // The only token to compute is not known on the host: the batch before samples it, in this row. -1: all are known.
    int input_row = -1;

    int num_samples() const { return samples ? 1 + static_cast<int>(draft.size()) : 0; }
    void add_draft(std::vector<int> tokens) {
        count += static_cast<int>(tokens.size());
        draft = std::move(tokens);
    }
};

struct batch {
    block_moves moves{};
    std::vector<block_copy> copies{};
    std::vector<batch_entry> entries{};  // none: a batch that only saves

    int tokens() const {
        int all = 0;
        for (const batch_entry& entry : entries) all += entry.count;
        return all;
    }
    int samples() const {
        int all = 0;
        for (const batch_entry& entry : entries) all += entry.num_samples();
        return all;
    }
    int drafted() const {
        int all = 0;
        for (const batch_entry& entry : entries) all += static_cast<int>(entry.draft.size());
        return all;
    }
    // Entries that compute generated tokens only.
    int generated() const {
        return static_cast<int>(std::ranges::count_if(
            entries, [](const batch_entry& one) { return one.first >= one.sequence->num_prompt_tokens; }));
    }
};

// The batch as flat arrays for the paged kernels: varlen rows of all entries, and a padded block table.
struct packed_batch {
    std::vector<int> input_ids;       // one per row
    std::vector<int> input_rows;      // one per row: see batch_entry, input_row; empty if all tokens are known
    std::vector<int> cu_seqlens_q;    // entry i has rows [cu_seqlens_q[i], cu_seqlens_q[i + 1])
    std::vector<int> seqused_k;       // per entry: tokens in the KV cache, including those of this batch
    std::vector<int> block_tables;    // [cache group, entry, max_blocks_per_seq]; block 0 where there is none
    int max_blocks_per_seq = 0;       // a power of two: growing sequences then need few CUDA graphs
    std::vector<int> logits_indices;  // rows whose logits are needed
};

inline int padded_blocks_per_seq(int blocks) {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(blocks)));
}

// The rows of the batch before whose tokens are the input of this one; none if all tokens are known.
inline std::vector<int> input_rows_of(const batch& all) {
    std::vector<int> rows;
    const auto is_unknown = [](const batch_entry& entry) { return entry.input_row >= 0; };
    if (std::ranges::none_of(all.entries, is_unknown)) return rows;
    for (const batch_entry& entry : all.entries)
        rows.insert(rows.end(), static_cast<std::size_t>(entry.count), entry.input_row);
    return rows;
}

inline packed_batch pack_batch(const batch& all, int block_size, int groups = 1) {
    packed_batch packed;
    const auto width = [&](const batch_entry& entry) {
        return (entry.first + entry.count + block_size - 1) / block_size;
    };
    for (const batch_entry& entry : all.entries)
        packed.max_blocks_per_seq = std::max(packed.max_blocks_per_seq, width(entry));
    packed.max_blocks_per_seq = padded_blocks_per_seq(packed.max_blocks_per_seq);
    packed.input_rows = input_rows_of(all);
    packed.cu_seqlens_q.push_back(0);
    for (const batch_entry& entry : all.entries) {
        const int last = entry.first + entry.count;
        const auto tokens = entry.sequence->tokens.begin();
        const auto drafted = static_cast<int>(entry.draft.size());
        packed.input_ids.insert(packed.input_ids.end(), tokens + entry.first, tokens + last - drafted);
        packed.input_ids.insert(packed.input_ids.end(), entry.draft.begin(), entry.draft.end());
        packed.cu_seqlens_q.push_back(static_cast<int>(packed.input_ids.size()));
        packed.seqused_k.push_back(last);
        for (int left = entry.num_samples(); left > 0; --left)
            packed.logits_indices.push_back(packed.cu_seqlens_q.back() - left);
    }
    for (int group = 0; group < groups; ++group) {
        for (const batch_entry& entry : all.entries) {
            const auto blocks = entry.sequence->block_table.groups.at(static_cast<std::size_t>(group)).begin();
            const auto to = std::back_inserter(packed.block_tables);
            std::transform(blocks, blocks + width(entry), to, [](int block) { return std::max(block, 0); });
            std::fill_n(to, packed.max_blocks_per_seq - width(entry), 0);
        }
    }
    return packed;
}

}  // namespace imbrex::engine
