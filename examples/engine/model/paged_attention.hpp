// Attention of one layer with its paged KV cache, whatever the cache's element type: new keys and values are appended,
// and the queries, rotated in place, read them back. The runners of both worlds make the problems of their kernels of it.
#pragma once

#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_append/problem.hpp>
#include <imbrex/kernels/rope/embedding.hpp>

#include <cstdint>
#include <optional>

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// Keys and values are [block, KV head, token in block, column]; a block is contiguous.
struct layer_kv_cache {
    void* k = nullptr;
    void* v = nullptr;
    int blocks = 0;
    int block_size = 0;
    std::int64_t block_bytes = 0;  // from one block to the next
};

template <class Element>
struct paged_attention {
    int layer = 0;              // for error messages
    attention_view<Element> q;  // new tokens: rotated in place
    attention_view<const Element> k;
    attention_view<const Element> v;
    attention_view<Element> out;
    layer_kv_cache cache;
    paged_kv pages;
    const int* seqused_k = nullptr;
    varlen_sequences varlen;
    rope_embedding rope;
    std::optional<float> scale = {};
    const float* sinks = nullptr;  // a logit per head in the softmax denominator; or null
    int window = 0;                // visible keys of a query, its own included; 0: all before it
};

template <class Cache, class Element>
attention_view<Cache> cache_view(const paged_attention<Element>& from, void* of) {
    auto view = batch_head_sequence(static_cast<Cache*>(of), from.cache.blocks, from.k.extents[1],
                                    from.cache.block_size, from.k.columns());
    view.strides.given[0] = from.cache.block_bytes / static_cast<std::int64_t>(sizeof(Cache));
    return view;
}

template <class T>
attention_view<const T> const_view(const attention_view<T>& view) {
    return {view.pointer, view.extents, view.strides};
}

template <class Cache, class Element>
paged_append_problem<Element, Cache> append_problem_of(const paged_attention<Element>& from) {
    return {.k = from.k,
            .v = from.v,
            .k_cache = cache_view<Cache>(from, from.cache.k),
            .v_cache = cache_view<Cache>(from, from.cache.v),
            .paged_kv = from.pages,
            .seqused_k = from.seqused_k,
            .varlen = from.varlen,
            .rope = from.rope,
            .q = const_view(from.q),
            .q_out = from.q,
            .pdl_prefetch = true};  // the preceding kernels of the stream write only q, k and v
}

template <class Cache, class Element>
attention_problem<Element, attention_output_mode::normalised, Cache> attention_problem_of(
    const paged_attention<Element>& from) {
    return {.q = const_view(from.q),
            .k = const_view(cache_view<Cache>(from, from.cache.k)),
            .v = const_view(cache_view<Cache>(from, from.cache.v)),
            .out = from.out,
            .scale = from.scale,
            .sinks = from.sinks,
            .seqused_k = from.seqused_k,
            .varlen = from.varlen,
            .paged_kv = from.pages};
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
