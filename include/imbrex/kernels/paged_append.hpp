// New keys and values into their pages of a cache, in one launch: keys rotated, both rounded to the cache's type; and queries
// rotated, where they are or into an output.
//
//     using append = paged_append<bf16, e4m3>;                                 // bf16 into a cache of e4m3
//     paged_append_problem<bf16, e4m3> p{.k = batch_sequence_head(k, batches, 1, kv_heads, depth),      // one new token each
//                                        .v = batch_sequence_head(v, batches, 1, kv_heads, depth),
//                                        .k_cache = batch_head_sequence(k_pages, pages, kv_heads, 64, depth),
//                                        .v_cache = batch_head_sequence(v_pages, pages, kv_heads, 64, depth),
//                                        .k_scales = kv_scales_per_head(k_scales),
//                                        .v_scales = kv_scales_per_head(v_scales),
//                                        .paged_kv = {table, max_blocks_per_seq},
//                                        .seqused_k = lengths,                                         // new tokens included
//                                        .rope = frequencies.embedding(inv_freq, rope_style::half_split)};
//     append::launch(world::device, p, stream);
//
// The cache is laid out as attention reads it (kv_layout::paged): views [page, key head, row in page, column] with any
// distances, pages of any multiple of 16 rows, the same table and lengths. New token j of n of a sequence has the position
// seqused_k - n + j, as a causal mask has it. A token without a place is left out, its queries too, and changes nothing: rows of
// packed tokens outside of all sequences; a position below zero, if a sequence is shorter than its new tokens (a length of 0 leaves
// a sequence out); a position behind its last page; a page that the cache does not have, as -1. So a graph that is captured once may
// be replayed with fewer sequences. Where tables and lengths are in the host's world, the last two are refused instead. No two
// tokens may have the same place.
//
// What is stored is value * (1 / scale), rounded once to the nearest, ties to even, from the rotated key in fp32, and saturated:
// e4m3 at 448, int8 at -128 and 127. Scales are given and used as they are; nothing here chooses or changes one, so that what is in a
// page does not depend on the order in which it was written. A reader multiplies with the same scale (paged_cache/scales.hpp).
// Values, and columns that are not rotated, are copied bit by bit into a cache of their own type. New keys and values are bf16, fp16
// or float; a cache is of their type, of e4m3 or int8, or of 16 bits under those in float, then without scales.
//
// With `.pdl_prefetch = true` the caller promises that lengths, starts, table and turns are not written by kernels of the stream that may still
// run: where a token goes and how it is turned is found out while those end, and only k, v and q wait for them. In a step of a model the
// kernel before writes nothing else. The next kernel may then begin before they have ended as well: the same holds for what it reads
// early itself, as a decode with `pdl_prefetch` does. Where tokens are many, it changes nothing.
//
// Nothing is allocated and nothing waited for. What is refused is refused before anything is launched.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache/scales.hpp>
#include <imbrex/kernels/paged_append/kernel.hpp>
#include <imbrex/kernels/paged_append/problem.hpp>
#include <imbrex/kernels/rope_embedding.hpp>

#include <cstdint>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Cache = In>
class paged_append {
  public:
    using problem = paged_append_problem<In, Cache>;
    template <append_tiling Rows>
    using kernel = paged_append_kernel<In, Cache, Rows>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_paged_append(where, p);
        if (p.empty()) return;
        if (rows_are_whole<append_tiling::wide>(p) && has_many_tiles(p)) {
            launch_kernel<append_tiling::wide>(where, p, stream);
        } else if (rows_are_whole<append_tiling::narrow>(p)) {
            launch_kernel<append_tiling::narrow>(where, p, stream);
        } else {
            launch_kernel<append_tiling::unaligned>(where, p, stream);
        }
    }

    template <append_tiling Rows>
    static typename kernel<Rows>::arguments arguments_of(const problem& p) {
        return {.q = heads_as_rows(p.q),
                .q_out = heads_as_rows(p.q_out),
                .k = heads_as_rows(p.k),
                .v = heads_as_rows(p.v),
                .k_cache = heads_as_rows(p.k_cache),
                .v_cache = heads_as_rows(p.v_cache),
                .k_scales = p.k_scales,
                .v_scales = p.v_scales,
                .tokens = {.cu_seqlens_q = p.varlen.cu_seqlens_q,
                           .seqused_k = p.seqused_k,
                           .block_table = p.paged_kv.block_table,
                           .sequences = p.sequences(),
                           .tokens = fast_divmod(p.k.rows()),
                           .max_blocks_per_seq = p.paged_kv.max_blocks_per_seq,
                           .page_size = fast_divmod(p.k_cache.rows()),
                           .pages = static_cast<int>(p.k_cache.extents[0])},
                .rope = p.rope,
                .pdl_prefetch = p.pdl_prefetch};
    }

  private:
    template <append_tiling Rows>
    static void launch_kernel(world where, const problem& p, void* stream) {
        const auto arguments = arguments_of<Rows>(p);
        const grid_dim grid = kernel<Rows>::grid_of(arguments, static_cast<int>(p.tokens()));
        if (grid.y > 0) imbrex::launch<kernel<Rows>>(where, grid, arguments, stream);
    }

    // Of wide tiles, more than four for each multiprocessor, about: then narrower ones would not bring more of these to work.
    static bool has_many_tiles(const problem& p) {
        using wide = kernel<append_tiling::wide>;
        const grid_dim grid = wide::grid_of(arguments_of<append_tiling::wide>(p), static_cast<int>(p.tokens()));
        return std::int64_t{grid.x} * grid.y * wide::warps > 512;
    }
    template <append_tiling Rows>
    static bool rows_are_whole(const problem& p) {
        constexpr int wide = kernel<Rows>::columns_at_once;
        const int half = p.rope.rotary_dim / 2, copied = p.k.columns() - p.rope.rotary_dim;
        return half % wide == 0 && copied % wide == 0 && p.v.columns() % wide == 0 && begin_in_pairs(p.q) &&
               begin_in_pairs(p.k) && begin_in_pairs(p.v);
    }
    static bool begin_in_pairs(const attention_view<const In>& view) {
        bool all = reinterpret_cast<std::uintptr_t>(view.pointer) % (2 * sizeof(In)) == 0;
        for (int i = 0; i < 3; ++i) all = all && (view.extents[i] <= 1 || view.strides[i] % 2 == 0);
        return all;
    }

    template <class T>
    static attention_view<T> heads_as_rows(const attention_view<T>& view) {
        return {view.pointer,
                {view.extents[0], view.extents[2], view.extents[1], view.extents[3]},
                {view.strides[0], view.strides[2], view.strides[1]}};
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
