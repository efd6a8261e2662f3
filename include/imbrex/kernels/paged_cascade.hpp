// Cascade attention: decode of sequences with a shared prefix. The prefix is in pages that all sequences share, each
// suffix in the sequence's own pages. The prefix is read once for all sequences instead of once per sequence:
//
//     using cascade = paged_cascade<bf16>;
//     attention_problem<bf16> own{...};       // as for paged_decode, with lengths and block table of the suffixes
//     cascade::launch(world::device, own,
//                     {.paged_kv = {.block_table = prefix_table, .max_blocks_per_seq = prefix_width},
//                      .seqused_k = prefix_length},
//                     {.workspace = workspace}, {}, {}, stream);
//
// Every token sees the whole prefix; the mask applies to the suffix. O, lse2 and sinks are as if the prefix's pages
// came first in each sequence's block table.
//
//     1. decode over the prefix, with the tokens of all sequences as one sequence     partial result in the workspace
//     2. decode over the suffixes, LSE merge with the partial result                  starts early through PDL
//
// Both kernels are launched into the stream. Nothing is allocated and the host does not wait; lengths and block tables
// are read when the kernels run. Prefix and suffixes are in the same KV cache. Masks and score modifiers that depend on
// the distance of query and key would need the length of the prefix and do not compile (mask_shows_prefix,
// score_ignores_positions).
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace imbrex {

// Whether a mask shows every query all keys before those of its own sequence. Specialise it for your own masks.
template <class Mask>
inline constexpr bool mask_shows_prefix = false;
template <>
inline constexpr bool mask_shows_prefix<full_mask> = true;
template <>
inline constexpr bool mask_shows_prefix<causal_mask> = true;

// The shared prefix, in the same KV cache as the suffixes.
struct shared_prefix {
    imbrex::paged_kv paged_kv = {};  // block table of one sequence
    const int* seqused_k = nullptr;  // one number; null: all keys of its pages
};

struct cascade_options {
    // paged_cascade::workspace_bytes bytes, zero before the first launch. It may be reused by launches with the same
    // number of tokens. Launches with another number of tokens, and concurrent launches, need one each.
    void* workspace = nullptr;
    bool pdl_prefetch = false;  // as in decode_options; also for the prefix
    int blocks = 0;
};

inline namespace IMBREX_WORLDS {

template <class In, head_dim_set HeadDims = all_decode_head_dims, class Mask = causal_mask,
          class Score = score_mod::identity>
class paged_cascade {
    static_assert(mask_shows_prefix<Mask>,
                  "imbrex: paged_cascade needs a mask that shows the whole prefix: full_mask or causal_mask");
    static_assert(score_ignores_positions<Score>,
                  "imbrex: paged_cascade needs a score modifier that ignores query and key positions");

  public:
    using problem = attention_problem<In>;

    // Depends on the number of tokens and on the device, not on the lengths.
    static std::size_t workspace_bytes(world where, const problem& own, const shared_prefix& prefix, int blocks = 0) {
        return layout_of(where, own, prefix, blocks).bytes;
    }

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& own, const host::check_options& options = {},
                                       const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, own, more...); }, options);
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
        // The first kernel signals its dependents only after its own dependencies are complete, or the caller has
        // promised that they do not matter: the second may always prefetch.
        suffix_options.pdl_prefetch = true;
        decode_prefix::launch(where, first, prefix_options, {}, score, stream);
        decode_suffix::launch(where, own, suffix_options, mask, score, stream);
    }

  private:
    using decode_prefix =
        paged_decode<In, decode_config{.head_dims = HeadDims, .output = attention_output_mode::partial}, full_mask,
                     Score>;
    using decode_suffix = paged_decode<In, decode_config{.head_dims = HeadDims}, Mask, Score>;
    using partial_problem = typename decode_prefix::problem;

    // Workspace layout: the workspaces of the two launches, which persist between calls, and the partial result.
    struct layout {
        std::size_t prefix, suffix, o_accum, row_max, row_sum, bytes;
    };
    static layout layout_of(world where, const problem& own, const shared_prefix& prefix, int blocks) {
        // Sizes depend on shapes only: any address will do.
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

    // The tokens of all sequences as one sequence.
    static partial_problem prefix_problem(const problem& own, const shared_prefix& prefix, const layout& at,
                                          char* workspace) {
        const std::int64_t sequences = own.q.extents[0], tokens = own.q.extents[2], all = sequences * tokens;
        const std::int64_t row = tokens == 1 ? own.q.strides[0] : own.q.strides[2];
        require(sequences <= 1 || own.q.strides[0] == tokens * row, "q.strides[0]: ", own.q.strides[0], "; the ",
                tokens, " tokens of a sequence are ", row,
                " elements apart, and consecutive sequences must continue at the same distance");
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
    // The partial result, viewed with the sequences and tokens of the suffix problem.
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
