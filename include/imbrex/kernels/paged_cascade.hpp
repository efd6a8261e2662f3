// Decode of sequences that begin alike: a prefix in pages that all of them share, and pages of their own. The prefix is read for all of
// them together, and not once for each:
//
//     using cascade = paged_cascade<bf16>;
//     attention_problem<bf16> own{...};                  // as for paged_decode: lengths and table are those of the own pages
//     cascade::launch(world::device, own, {.paged_kv = {.block_table = prefix_table, .max_blocks_per_seq = prefix_width},
//                                          .seqused_k = prefix_length},
//                     {.workspace = workspace}, {}, {}, stream);
//
// Every token sees the whole prefix, and of its own sequence's keys what the mask says. Results are as if the prefix's pages stood in
// front of each sequence's own: O, lse2 and sinks.
//
//     1. all sequences' tokens, as those of one sequence, attend to the prefix            a partial result in the workspace
//     2. each sequence's attend to its own pages, and the two results are put together    begins before the first has ended
//
// Both launches go into the stream; nothing is allocated or waited for, and lengths and tables are read when the kernels run. The
// prefix is in the same cache as the own pages. A mask that hides keys by their distance, or a score that depends on it, would have
// to know how long the prefix is: those are not taken.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

// Whether a mask shows each query all keys before those of its own sequence. Who writes such a mask says so here.
template <class Mask>
inline constexpr bool mask_shows_prefix = false;
template <>
inline constexpr bool mask_shows_prefix<full_mask> = true;
template <>
inline constexpr bool mask_shows_prefix<causal_mask> = true;

// Pages that all sequences begin with, in the cache that they have their own pages in.
struct shared_prefix {
    imbrex::paged_kv paged_kv = {};  // of one sequence
    const int* seqused_k = nullptr;  // one number; without it, as many keys as the pages have room for
};

struct cascade_options {
    // As many bytes as paged_cascade::workspace_bytes says, zero before the first launch, and then left to launches of as many
    // tokens. Those of other numbers, or at the same time, need one each.
    void* workspace = nullptr;
    bool pdl_prefetch = false;  // as decode_options has it, said of the prefix too
    int blocks = 0;
};

inline namespace IMBREX_WORLDS {

template <class In, class Mask = causal_mask, class Score = score_mod::identity, class HeadDims = all_decode_head_dims>
class paged_cascade {
    static_assert(mask_shows_prefix<Mask>,
                  "imbrex: a cascade's mask shows the whole prefix, as full_mask and causal_mask do");
    static_assert(score_ignores_positions<Score>,
                  "imbrex: a cascade's score does not depend on where query and key stand");

  public:
    using problem = attention_problem<In>;

    // Depends on the number of tokens and on the device, not on lengths.
    static std::size_t workspace_bytes(world where, const problem& own, const shared_prefix& prefix, int blocks = 0) {
        return layout_of(where, own, prefix, blocks).bytes;
    }

    static void launch(world where, const problem& own, const shared_prefix& prefix, const cascade_options& options,
                       const Mask& mask = {}, const Score& score = {}, void* stream = nullptr) {
        require_attention(where, own, kv_layout::paged);
        if (own.empty()) return;
        const layout at = layout_of(where, own, prefix, options.blocks);
        const auto address = reinterpret_cast<std::uintptr_t>(options.workspace);
        require(address != 0 && address % alignof(decode_workspace_slice) == 0,
                "options.workspace: ", options.workspace, "; ", at.bytes, " bytes at a multiple of ",
                alignof(decode_workspace_slice), " are needed");
        const partial_problem first = prefix_problem(own, prefix, at, static_cast<char*>(options.workspace));
        decode_options prefix_options, suffix_options;
        prefix_options.workspace = static_cast<char*>(options.workspace) + at.prefix;
        suffix_options.workspace = static_cast<char*>(options.workspace) + at.suffix;
        prefix_options.blocks = suffix_options.blocks = options.blocks;
        prefix_options.pdl_prefetch = options.pdl_prefetch;
        suffix_options.merge_with.o_accum = results_of(own, first);
        suffix_options.merge_with.row_max = rows_of(own, first.row_max);
        suffix_options.merge_with.row_sum = rows_of(own, first.row_sum);
        // The first launch allows the second to begin only when what came before it is done, or may still run by the caller's word.
        suffix_options.pdl_prefetch = true;
        decode_prefix::launch(where, first, prefix_options, {}, score, stream);
        decode_suffix::launch(where, own, suffix_options, mask, score, stream);
    }

  private:
    using decode_prefix = paged_decode<In, full_mask, Score, attention_output_mode::partial, HeadDims>;
    using decode_suffix = paged_decode<In, Mask, Score, attention_output_mode::normalised, HeadDims>;
    using partial_problem = typename decode_prefix::problem;

    // Where in the workspace the two launches have theirs, which are left as they are from one time to the next, and where the partial
    // result is.
    struct layout {
        std::size_t prefix, suffix, o_accum, row_max, row_sum, bytes;
    };
    static layout layout_of(world where, const problem& own, const shared_prefix& prefix, int blocks) {
        // Sizes follow from shapes alone, so any address will do.
        const partial_problem first =
            prefix_problem(own, prefix, {}, reinterpret_cast<char*>(workspace_layout::alignment));
        const std::size_t rows = static_cast<std::size_t>(first.seqlen_q()) * first.heads();
        workspace_layout buffers;
        layout made{};
        made.prefix = buffers.add(decode_prefix::workspace_bytes(where, first, blocks));
        made.suffix = buffers.add(decode_suffix::workspace_bytes(where, own, blocks));
        made.o_accum = buffers.add(rows * own.v.extents[3] * sizeof(float));
        made.row_max = buffers.add(rows * sizeof(float));
        made.row_sum = buffers.add(rows * sizeof(float));
        made.bytes = buffers.bytes();
        return made;
    }

    // The tokens of all sequences, as those of one.
    static partial_problem prefix_problem(const problem& own, const shared_prefix& prefix, const layout& at,
                                          char* workspace) {
        const std::int64_t sequences = own.q.extents[0], tokens = own.q.extents[2], all = sequences * tokens;
        const std::int64_t row = tokens == 1 ? own.q.strides[0] : own.q.strides[2];
        require(sequences <= 1 || own.q.strides[0] == tokens * row, "q.strides[0]: ", own.q.strides[0], "; the ",
                tokens, " tokens of a sequence lie ", row, " elements apart, and so must those of all");
        require(all <= 2147483647, "q.extents[0], q.extents[2]: ", sequences, ", ", tokens,
                "; at most 2147483647 tokens are allowed");
        partial_problem first;
        first.q = {own.q.pointer, {1, own.q.extents[1], all, own.q.extents[3]}, {0, own.q.strides[1], row}};
        first.k = own.k;
        first.v = own.v;
        first.out = batch_sequence_head(reinterpret_cast<float*>(workspace + at.o_accum), 1, all, own.q.extents[1],
                                        own.v.extents[3]);
        first.row_max = batch_head_rows(reinterpret_cast<float*>(workspace + at.row_max), own.q.extents[1], all);
        first.row_sum = batch_head_rows(reinterpret_cast<float*>(workspace + at.row_sum), own.q.extents[1], all);
        first.scale = own.scale_used();
        first.seqused_k = prefix.seqused_k;
        first.paged_kv = prefix.paged_kv;
        return first;
    }
    // The partial result as the own problem counts its sequences and tokens.
    static attention_view<float> results_of(const problem& own, const partial_problem& first) {
        const std::int64_t row = first.out.strides[2];
        return {first.out.pointer,
                {own.q.extents[0], own.q.extents[1], own.q.extents[2], own.v.extents[3]},
                {own.q.extents[2] * row, first.out.strides[1], row}};
    }
    static attention_row_view rows_of(const problem& own, const attention_row_view& first) {
        return {first.pointer, own.q.extents[2], first.head_stride};
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
