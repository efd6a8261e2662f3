// New keys and values into their pages of a cache, in one launch: keys rotated, both rounded to the cache's type; and queries
// rotated, where they are or into an output.
//
//     using append = paged_append<bf16, e4m3>;                                 // bf16 into a cache of e4m3
//     paged_append_problem<bf16, e4m3> p{.k = batch_sequence_head(k, batches, 1, key_heads, depth),      // one new token each
//                                        .v = batch_sequence_head(v, batches, 1, key_heads, depth),
//                                        .k_cache = batch_head_sequence(k_pages, pages, key_heads, 64, depth),
//                                        .v_cache = batch_head_sequence(v_pages, pages, key_heads, 64, depth),
//                                        .k_scales = scales_of_heads(k_scales),
//                                        .v_scales = scales_of_heads(v_scales),
//                                        .pages = {table, pages_per_sequence},
//                                        .key_lengths = lengths,                                         // new tokens included
//                                        .rotary = frequencies.embedding(turns, rotary_style::half_split)};
//     append::launch(world::device, p, stream);
//
// The cache is laid out as attention reads it (attention_keys::in_pages): views [page, key head, row in page, column] with any
// distances, pages of any multiple of 16 rows, the same table and lengths. New token j of n of a sequence has the position
// key_lengths - n + j, as a causal mask has it. A token without a place is left out, its queries too, and changes nothing: rows of
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
// With `.early = true` the caller promises that lengths, starts, table and turns are not written by kernels of the stream that may still
// run: where a token goes and how it is turned is found out while those end, and only k, v and q wait for them. In a step of a model the
// kernel before writes nothing else. The next kernel may then begin before they have ended as well: the same holds for what it reads
// early itself, as a decode with `early` does. Where tokens are many, it changes nothing.
//
// Nothing is allocated and nothing waited for. What is refused is refused before anything is launched.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_append/kernel.hpp>
#include <imbrex/kernels/paged_append/problem.hpp>
#include <imbrex/kernels/paged_cache/scales.hpp>
#include <imbrex/kernels/rotary.hpp>

#include <cstdint>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Cache = In>
class paged_append {
  public:
    using problem = paged_append_problem<In, Cache>;
    template <append_rows Rows>
    using kernel = paged_append_kernel<In, Cache, Rows>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_paged_append(where, p);
        if (p.empty()) return;
        if (rows_are_whole<append_rows::whole>(p) && has_many_parts(p)) {
            launch_kernel<append_rows::whole>(where, p, stream);
        } else if (rows_are_whole<append_rows::narrow>(p)) {
            launch_kernel<append_rows::narrow>(where, p, stream);
        } else {
            launch_kernel<append_rows::any>(where, p, stream);
        }
    }

    template <append_rows Rows>
    static typename kernel<Rows>::arguments arguments_of(const problem& p) {
        return {.q = heads_as_rows(p.q),
                .q_out = heads_as_rows(p.q_out),
                .k = heads_as_rows(p.k),
                .v = heads_as_rows(p.v),
                .k_cache = heads_as_rows(p.k_cache),
                .v_cache = heads_as_rows(p.v_cache),
                .k_scales = p.k_scales,
                .v_scales = p.v_scales,
                .tokens = {.query_starts = p.packed.query_starts,
                           .key_lengths = p.key_lengths,
                           .table = p.pages.table,
                           .sequences = p.sequences(),
                           .tokens = known_divisor(p.k.rows()),
                           .pages_per_sequence = p.pages.pages_per_sequence,
                           .page_rows = known_divisor(p.k_cache.rows()),
                           .pages = static_cast<int>(p.k_cache.extents[0])},
                .rotary = p.rotary,
                .early = p.early};
    }

  private:
    template <append_rows Rows>
    static void launch_kernel(world where, const problem& p, void* stream) {
        const auto arguments = arguments_of<Rows>(p);
        const position grid = kernel<Rows>::grid_of(arguments, static_cast<int>(p.tokens()));
        if (grid.y > 0) imbrex::launch<kernel<Rows>>(where, grid, arguments, stream);
    }

    // Of wide tiles, more than four for each multiprocessor, about: then narrower ones would not bring more of these to work.
    static bool has_many_parts(const problem& p) {
        using wide = kernel<append_rows::whole>;
        const position grid = wide::grid_of(arguments_of<append_rows::whole>(p), static_cast<int>(p.tokens()));
        return std::int64_t{grid.x} * grid.y * wide::warps > 512;
    }
    template <append_rows Rows>
    static bool rows_are_whole(const problem& p) {
        constexpr int wide = kernel<Rows>::columns_at_once;
        const int half = p.rotary.columns / 2, copied = p.k.columns() - p.rotary.columns;
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
