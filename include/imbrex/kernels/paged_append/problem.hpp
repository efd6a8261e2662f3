// The arguments of paged_append, and their checks: new keys and values, the paged KV cache with its block table, scales
// and RoPE.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/kernels/rope/embedding.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class In, class Cache = In>
struct paged_append_problem {
    static_assert(std::is_same_v<In, bf16> || std::is_same_v<In, fp16> || std::is_same_v<In, float>,
                  "imbrex: new keys and values are bf16, fp16 or float");
    static_assert(std::is_same_v<Cache, In> || sizeof(Cache) < sizeof(In),
                  "imbrex: a cache has the type of the new keys and values, or a smaller one");
    static_assert(std::is_same_v<Cache, In> || std::is_same_v<Cache, bf16> || std::is_same_v<Cache, fp16> ||
                      std::is_same_v<Cache, e4m3> || std::is_same_v<Cache, std::int8_t>,
                  "imbrex: a cache has the type of the new keys and values, or it is bf16, fp16, e4m3 or int8");

    attention_view<const In> k;     // [batch, KV head, new token, head_dim_qk]; varlen: batch is 1
    attention_view<const In> v;     // [batch, KV head, new token, head_dim_v]
    attention_view<Cache> k_cache;  // [page, KV head, row in page, head_dim_qk]
    attention_view<Cache> v_cache;  // [page, KV head, row in page, head_dim_v]
    kv_cache_scales k_scales = {};  // for 8-bit caches
    kv_cache_scales v_scales = {};
    imbrex::paged_kv paged_kv = {};   // block table, as in attention_problem
    const int* seqused_k = nullptr;   // length of each sequence, new tokens included
    varlen_sequences varlen = {};     // count and cu_seqlens_q, for varlen inputs
    rope_embedding rope = {};         // applied to K and Q; default: none
    attention_view<const In> q = {};  // [batch, head, new token, head_dim_qk]: queries to rotate; optional
    attention_view<In> q_out = {};    // q itself, or memory that does not overlap it
    // PDL: the caller promises that no kernel still running in the stream writes seqused_k, cu_seqlens_q, the block
    // table or inv_freq. Those kernels may then still run when the next kernel starts, too.
    bool pdl_prefetch = false;

    int sequences() const { return varlen.given() ? varlen.count : static_cast<int>(k.extents[0]); }
    // Of all sequences; with varlen some rows may belong to none.
    std::int64_t tokens() const { return k.extents[0] * k.extents[2]; }
    bool empty() const { return tokens() == 0 || sequences() == 0; }
};

namespace detail {

template <class T>
void require_cache(const attention_view<T>& cache, const char* name) {
    const char* const names[] = {"pages", "heads", "rows"};
    for (int i = 0; i < 3; ++i) {
        require(cache.extents[i] <= 1 || cache.strides[i] >= cache.extents[3], name, ".strides[", i,
                "]: ", cache.strides[i], "; ", names[i], " of a cache must be at least ", cache.extents[3],
                " elements apart, one row");
    }
}

inline void require_scales(const kv_cache_scales& scales, const char* name, bool scaled, const char* type) {
    require(scaled || !scales.given(), name, ".pointer: ", scales.pointer, "; a cache of ", type,
            " has no scales, must be null");
    require(scales.page_stride >= 0, name, ".page_stride: ", scales.page_stride, "; it must not be negative");
    require(scales.head_stride >= 0, name, ".head_stride: ", scales.head_stride, "; it must not be negative");
}

template <class In, class Cache>
void require_appended_queries(const paged_append_problem<In, Cache>& p) {
    require_view(p.q, "q");
    require_view(p.q_out, "q_out");
    if (p.q.extents[1] == 0 && p.q_out.extents[1] == 0) return;
    const char* const names[] = {"members of the batch", "heads", "rows", "columns"};
    for (int i = 0; i < 4; ++i) {
        if (i != 1) require_same(p.q.extents[i], "q", i, p.k.extents[i], "k", names[i]);
        require_same(p.q_out.extents[i], "q_out", i, p.q.extents[i], "q", names[i]);
        require(i == 3 || p.q_out.extents[i] <= 1 || p.q_out.strides[i] >= p.q_out.extents[3], "q_out.strides[", i,
                "]: ", p.q_out.strides[i], "; ", names[i], " of results lie at least the ", p.q_out.extents[3],
                " elements of a row apart");
    }
}

// Checks of arrays in the host world, which the host can read.
template <class In, class Cache>
void require_slots(const paged_append_problem<In, Cache>& p) {
    const std::int64_t rows = p.k_cache.extents[2], room = p.paged_kv.max_blocks_per_seq;
    if (p.varlen.given())
        require_cu_seqlens(p.varlen.cu_seqlens_q, "varlen.cu_seqlens_q", p.varlen.count, p.k.extents[2]);
    for (int i = 0; i < p.sequences(); ++i) {
        const std::int64_t length = p.seqused_k[i];
        require(length >= 0 && length <= room * rows, "seqused_k[", i, "]: ", length,
                "; the pages of a sequence have room for ", room * rows, " keys, and none may be negative");
        const std::int64_t added =
            p.varlen.given() ? p.varlen.cu_seqlens_q[i + 1] - p.varlen.cu_seqlens_q[i] : p.k.extents[2];
        const std::int64_t first = length > added ? length - added : 0;
        if (added == 0) continue;
        for (std::int64_t place = i * room + first / rows; place < i * room + ceil_div(length, rows); ++place) {
            require(p.paged_kv.block_table[place] >= 0 && p.paged_kv.block_table[place] < p.k_cache.extents[0],
                    "paged_kv.block_table[", place, "]: ", p.paged_kv.block_table[place], "; there are ",
                    p.k_cache.extents[0], " pages");
        }
    }
}

}  // namespace detail

template <class In, class Cache>
void require_paged_append(world where, const paged_append_problem<In, Cache>& p) {
    using namespace detail;
    require_view(p.k, "k");
    require_view(p.v, "v");
    require_view(p.k_cache, "k_cache");
    require_view(p.v_cache, "v_cache");
    require_head_dim(p.k.extents[3], "k", 8);
    require_head_dim(p.v.extents[3], "v", 8);
    const char* const names[] = {"members of the batch", "heads", "rows"};
    for (int i = 0; i < 3; ++i) require_same(p.v.extents[i], "v", i, p.k.extents[i], "k", names[i]);
    require_same(p.k_cache.extents[1], "k_cache", 1, p.k.extents[1], "k", "heads");
    require_same(p.k_cache.extents[3], "k_cache", 3, p.k.extents[3], "k", "columns");
    require_same(p.v_cache.extents[0], "v_cache", 0, p.k_cache.extents[0], "k_cache", "pages");
    require_same(p.v_cache.extents[1], "v_cache", 1, p.k.extents[1], "k", "heads");
    require_same(p.v_cache.extents[2], "v_cache", 2, p.k_cache.extents[2], "k_cache", "rows");
    require_same(p.v_cache.extents[3], "v_cache", 3, p.v.extents[3], "v", "columns");
    require_cache(p.k_cache, "k_cache");
    require_cache(p.v_cache, "v_cache");
    constexpr bool scaled = sizeof(Cache) == 1;
    require_scales(p.k_scales, "k_scales", scaled, imbrex::name_of<Cache>());
    require_scales(p.v_scales, "v_scales", scaled, imbrex::name_of<Cache>());
    require_appended_queries(p);
    const rope_embedding& rope = p.rope;
    require(rope.rotary_dim >= 0 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= p.k.extents[3],
            "rope.rotary_dim: ", rope.rotary_dim, "; must be even and at most the ", p.k.extents[3],
            " columns of a key");
    require(!rope.given() || rope.inv_freq != nullptr, "rope.inv_freq: null; ", rope.rotary_dim / 2,
            " numbers are needed");

    const std::int64_t rows = p.k_cache.extents[2], room = p.paged_kv.max_blocks_per_seq;
    require(rows > 0 && rows % page_size_step == 0, "k_cache.extents[2]: ", rows,
            "; the rows of a page are a multiple of ", page_size_step);
    require(room >= 0, "paged_kv.max_blocks_per_seq: ", room, "; it must not be negative");
    require(room * rows <= 2147483647, "paged_kv.max_blocks_per_seq: ", room, "; with pages of ", rows,
            " rows a sequence has room for ", room * rows, " keys, and at most 2147483647 are allowed");
    require(p.varlen.count >= 0, "varlen.count: ", p.varlen.count, "; the number of sequences must not be negative");
    require(p.varlen.cu_seqlens_k == nullptr, "varlen.cu_seqlens_k: ", p.varlen.cu_seqlens_k,
            "; must be null for paged KV: seqused_k has the lengths");
    require(!p.varlen.given() || p.k.extents[0] == 1, "k.extents[0]: ", p.k.extents[0], "; must be 1 for varlen");
    require(p.tokens() <= 2147483647, "k.extents[0], k.extents[2]: ", p.k.extents[0], ", ", p.k.extents[2],
            "; at most 2147483647 tokens are allowed");
    if (p.empty()) return;
    require(!p.varlen.given() || p.varlen.cu_seqlens_q != nullptr, "varlen.cu_seqlens_q: null; ", p.varlen.count + 1,
            " numbers are needed");
    require(p.seqused_k != nullptr, "seqused_k: null; ", p.sequences(), " numbers are needed");
    require(p.paged_kv.block_table != nullptr || room == 0, "paged_kv.block_table: null; ", p.sequences(), " x ", room,
            " numbers are needed");
    if (where != world::device) require_slots(p);
}

}  // namespace imbrex
