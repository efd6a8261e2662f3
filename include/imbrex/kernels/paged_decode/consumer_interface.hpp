// The interface of the consumer warps of the decode kernels, in two levels. The kernels check it.
//
//     kernel             split consumer               tile attention
//     hopper.hpp         decode_consumer              decode_attention; decode_attention_swap_ab for an 8-bit cache and
//                                                     up to 16 query rows
//     ampere.hpp         decode_consumer              decode_attention
//     multi_kv_head.hpp  multi_kv_head_consumer       decode_attention_swap_ab
//     cluster.hpp        none: one split per block    decode_attention
//
// A split consumer is the consumer warps of a block. They attend to the splits of the block, one after the other:
//
//     count                           consumer warps
//     block_m, block_n                query rows of a work item, keys of a tile
//     stage, shared_memory            a stage of the ring, and the memory of the consumers
//     slices, slices_for(rows)        workspace slices of a split: at most, and if no sequence has more rows than this
//     run(self, args, memory, splits, stages)
//
// splits.next() returns the splits in order, and at the end one that does not exist. stages.wait() returns the next
// stage, `held`, which is released at the end of its scope or by release(); skip(n) passes over the stages of other
// warps. Functions of a consumer take the scope, the kernel's arguments and the split first, then what they write, then
// what they read.
//
// A tile attention is one warp's attention to the tiles of one split:
//
//     attention(self, queries, scale)          `queries`, of type query_rows: the packed GQA rows of the warp,
//                                              the same in every call
//     attend(self, queries, held, rows, first_key, end_key, mask, score, scale, page_scales)
//                                              One tile. `first_key` is the sequence index of its first key. Values
//                                              past end_key must be finite.
//     finish(self, result, factor)             After the last tile: O times `factor`, the scale of all values, row_max
//                                              and row_sum.
#pragma once

#include <imbrex/hw/scope.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/paged_decode/kv_scaling.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace imbrex {

template <class Consumer>
concept decode_split_consumer = requires {
    requires Consumer::count >
    0 && Consumer::block_m > 0 && Consumer::block_n > 0 && Consumer::slices > 0;
    typename Consumer::stage;
    typename Consumer::shared_memory;
    { Consumer::slices_for(std::int64_t{1}) } -> std::same_as<int>;
    { Consumer::workspace_bytes(1) } -> std::same_as<std::size_t>;
};

template <class Attention, class Result>
concept decode_tile_attention = requires(Attention work, const warp& self,
                                         const typename Attention::query_rows& queries,
                                         decode_stage<typename Attention::key_tile>* held, const gqa_rows& rows,
                                         const full_mask& mask, const score_mod::identity& score,
                                         const stage_kv_scales<Attention::key_tile::rows>& page_scales,
                                         Result& result) {
    Attention(self, queries, 1.0f);
    work.attend(self, queries, held, rows, 0, 1, mask, score, 1.0f, page_scales);
    work.finish(self, result, 1.0f);
};

}  // namespace imbrex
