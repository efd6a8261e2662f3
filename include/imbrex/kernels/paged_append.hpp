// Writes new keys and values into a paged KV cache, in one launch: applies RoPE to the keys, rounds both to the cache's
// type, and applies RoPE to the queries, in place or into an output. (vLLM: reshape_and_cache; FlashInfer:
// append_paged_kv_cache.)
//
//     using append = paged_append<bf16, e4m3>;                                 // bf16 into an e4m3 cache
//     paged_append_problem<bf16, e4m3> p{.k = batch_sequence_head(k, batches, 1, kv_heads, head_dim),  // 1 token
//                                        .v = batch_sequence_head(v, batches, 1, kv_heads, head_dim),
//                                        .k_cache = batch_head_sequence(k_pages, pages, kv_heads, 64, head_dim),
//                                        .v_cache = batch_head_sequence(v_pages, pages, kv_heads, 64, head_dim),
//                                        .k_scales = kv_scales_per_head(k_scales),
//                                        .v_scales = kv_scales_per_head(v_scales),
//                                        .paged_kv = {table, max_blocks_per_seq},
//                                        .seqused_k = lengths,  // new tokens included
//                                        .rope = frequencies.embedding(inv_freq, rope_style::half_split)};
//     append::launch(world::device, p, stream);
//
// The KV cache has the layout that attention reads (kv_layout::paged): views [page, KV head, row in page, column] with
// any strides, pages of a multiple of 16 rows, the same block table and lengths. New token j of n has position
// seqused_k - n + j, as in a causal mask.
//
// A token without a slot is skipped, with its queries: a varlen row outside all sequences; a negative position, if a
// sequence is shorter than its new tokens (a length of 0 skips the sequence); a position past the block table; a page
// that does not exist, such as -1. A captured CUDA graph can therefore be replayed with fewer sequences. In the host
// world the last two throw imbrex::error instead. No two tokens may have the same slot.
//
// The stored value is value * (1 / scale), computed in fp32 from the rotated key, rounded once to nearest even and
// saturated: e4m3 at 448, int8 at -128 and 127. The kernel never chooses or changes a scale, so the content of a page
// does not depend on the order of writes. Readers multiply by the same scale (kv_cache_scales.hpp). Values, and columns
// that are not rotated, are copied bit by bit into a cache of their own type. Inputs are bf16, fp16 or float. The cache
// has their type, is e4m3 or int8, or, for float inputs, bf16 or fp16 without scales.
//
// With `.pdl_prefetch = true` (PDL) the caller promises that no kernel still running in the stream writes seqused_k,
// cu_seqlens_q, the block table or inv_freq. The kernel then computes slots and angles before its predecessor has
// finished, and waits only for k, v and q. In a model's step the preceding kernel writes nothing else. The next kernel
// may then start before those have finished as well: the promise must also hold for what that kernel prefetches, as
// paged_decode does with `pdl_prefetch`. With many tokens the option has no effect.
//
// A launch allocates nothing and does not synchronise. Invalid arguments throw imbrex::error before launch.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/kernels/paged_append/kernel.hpp>
#include <imbrex/kernels/paged_append/problem.hpp>
#include <imbrex/kernels/rope_embedding.hpp>

#include <cstdint>
#include <optional>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Cache = In>
class paged_append {
  public:
    using problem = paged_append_problem<In, Cache>;
    template <append_tiling Rows>
    using kernel = paged_append_kernel<In, Cache, Rows>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

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

    // More than about four wide tiles per SM: narrower ones would not occupy more SMs.
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
