// Attention forward features behind a C function, so that bench/kernels/attention_features.py can call them on PyTorch
// tensors. All go through the launcher. A variant is named by its head_dim (head_dim_qk "x" head_dim_v if they differ),
// its mask, its score modifier, and "lazy_rescaling" if it has that. Every variant takes GQA, varlen sequences,
// attention sinks and a tile counter. "paged" variants read a paged KV cache of bf16 or of the type that follows.
#include <imbrex/kernels/attention_forward.hpp>

#include "attention_calls.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

using namespace imbrex;

// Must match Call in attention_features.py.
struct attention_call {
    bf16* q;       // [batch, sequence, head, head_dim]
    bf16* k;       // [batch, sequence, kv_head, head_dim]
    bf16* v;       // [batch, sequence, kv_head, head_dim_v]
    bf16* out;     // [batch, sequence, head, head_dim_v]
    float* lse2;   // [batch, head, query] or null
    float* sinks;  // one per head, or null
    int* starts;   // cu_seqlens of q and k (varlen), or null
    // paged: k and v are [page, row, kv_head, head_dim], of the type of the variant
    int* block_table;  // [batch, pages of a sequence]
    int* seqused_k;
    float* k_scales;  // of e4m3 and int8: one per kv_head
    float* v_scales;
    void* stream;
    int sequences;  // varlen: number of sequences
    int batch, seqlen_q, seqlen_k, heads, kv_heads;
    int dynamic_scheduler;                     // blocks take tiles from a counter
    int window_left;                           // sliding window
    int page_size, pages, max_blocks_per_seq;  // paged
    float cap;                                 // softcap
    float scale;
};

namespace {

template <attention_head_dims HeadDims>
attention_problem<bf16> described(const attention_call& call) {
    attention_problem<bf16> p{
        .q = batch_sequence_head<const bf16>(call.q, call.batch, call.seqlen_q, call.heads, HeadDims.qk),
        .k = batch_sequence_head<const bf16>(call.k, call.batch, call.seqlen_k, call.kv_heads, HeadDims.qk),
        .v = batch_sequence_head<const bf16>(call.v, call.batch, call.seqlen_k, call.kv_heads, HeadDims.v),
        .out = batch_sequence_head(call.out, call.batch, call.seqlen_q, call.heads, HeadDims.v),
        .lse2 = batch_head_rows(call.lse2, call.heads, call.seqlen_q),
        .scale = call.scale,
        .sinks = call.sinks,
        .tile_counter = call.dynamic_scheduler != 0 ? bench::tile_counter() : nullptr};
    if (call.starts != nullptr) p.varlen = {call.sequences, call.starts, call.starts};
    return p;
}

template <class Mask>
Mask mask_of(const attention_call&) {
    return {};
}
template <>
window_mask mask_of(const attention_call& call) {
    return {call.window_left, 0};
}
template <class Score>
Score score_of(const attention_call&) {
    return {};
}
template <>
score_mod::softcap score_of(const attention_call& call) {
    return {call.cap};
}

template <attention_head_dims HeadDims, class Mask, class Score, attention_rescaling Softmax>
void launch(const attention_call& call) {
    using attention =
        attention_forward<bf16, attention_options{.head_dims = {HeadDims}, .rescaling = Softmax}, Mask, Score>;
    attention::launch(world::device, described<HeadDims>(call), mask_of<Mask>(call), score_of<Score>(call),
                      call.stream);
}

template <attention_head_dims HeadDims, class Mask, class Cache>
void launch_paged(const attention_call& call) {
    using attention = attention_forward<bf16, attention_options{.head_dims = {HeadDims}, .kv = kv_layout::paged}, Mask,
                                        score_mod::identity, Cache>;
    const auto pages_of = [&](const void* from, int head_dim) {
        return batch_sequence_head(static_cast<const Cache*>(from), call.pages, call.page_size, call.kv_heads,
                                   head_dim);
    };
    typename attention::problem p{
        .q = batch_sequence_head<const bf16>(call.q, call.batch, call.seqlen_q, call.heads, HeadDims.qk),
        .k = pages_of(call.k, HeadDims.qk),
        .v = pages_of(call.v, HeadDims.v),
        .out = batch_sequence_head(call.out, call.batch, call.seqlen_q, call.heads, HeadDims.v),
        .lse2 = batch_head_rows(call.lse2, call.heads, call.seqlen_q),
        .scale = call.scale,
        .seqused_k = call.seqused_k,
        .paged_kv = {call.block_table, call.max_blocks_per_seq}};
    if constexpr (sizeof(Cache) == 1) {
        p.k_scales = kv_scales_per_head(call.k_scales);
        p.v_scales = kv_scales_per_head(call.v_scales);
    }
    attention::launch(world::device, p, mask_of<Mask>(call), {}, call.stream);
}

struct variant {
    std::string_view name;
    attention_shape shape;
    void (*launch)(const attention_call&);
};

template <attention_head_dims HeadDims, class Mask, class Score = score_mod::identity,
          attention_rescaling Softmax = attention_rescaling::exact>
constexpr variant variant_of(std::string_view name) {
    return {name, attention_shape_for(HeadDims, attention_register_demand_of<Mask, Score>(), Softmax),
            launch<HeadDims, Mask, Score, Softmax>};
}

template <attention_head_dims HeadDims, class Mask, class Cache>
constexpr variant paged_variant_of(std::string_view name) {
    constexpr attention_register_demand demand = attention_register_demand_of<Mask, score_mod::identity>();
    return {
        name,
        sizeof(Cache) == 1 ? attention_8bit_cache_shape_for(HeadDims, demand) : attention_shape_for(HeadDims, demand),
        launch_paged<HeadDims, Mask, Cache>};
}

constexpr attention_head_dims unequal(192, 128);
constexpr variant variants[] = {
    variant_of<128, full_mask>("d128_full"),
    variant_of<128, causal_mask>("d128_causal"),
    variant_of<128, window_mask>("d128_window"),
    variant_of<128, full_mask, score_mod::softcap>("d128_full_softcap"),
    variant_of<128, causal_mask, score_mod::softcap>("d128_causal_softcap"),
    variant_of<128, full_mask, score_mod::softcap, attention_rescaling::lazy>("d128_full_softcap_lazy_rescaling"),
    variant_of<128, causal_mask, score_mod::softcap, attention_rescaling::lazy>("d128_causal_softcap_lazy_rescaling"),
    variant_of<96, full_mask>("d96_full"),
    variant_of<96, causal_mask>("d96_causal"),
    variant_of<96, full_mask, score_mod::identity, attention_rescaling::lazy>("d96_full_lazy_rescaling"),
    variant_of<96, causal_mask, score_mod::identity, attention_rescaling::lazy>("d96_causal_lazy_rescaling"),
    variant_of<unequal, full_mask>("d192x128_full"),
    variant_of<unequal, causal_mask>("d192x128_causal"),
    variant_of<192, full_mask>("d192_full"),
    variant_of<192, causal_mask>("d192_causal"),
    variant_of<256, full_mask>("d256_full"),
    variant_of<256, causal_mask>("d256_causal"),
    paged_variant_of<128, full_mask, bf16>("d128_full_paged"),
    paged_variant_of<128, causal_mask, bf16>("d128_causal_paged"),
    paged_variant_of<128, full_mask, e4m3>("d128_full_paged_e4m3"),
    paged_variant_of<128, causal_mask, e4m3>("d128_causal_paged_e4m3"),
    paged_variant_of<128, full_mask, std::int8_t>("d128_full_paged_int8"),
    paged_variant_of<128, causal_mask, std::int8_t>("d128_causal_paged_int8"),
    paged_variant_of<64, full_mask, bf16>("d64_full_paged"),
    paged_variant_of<64, causal_mask, bf16>("d64_causal_paged"),
    paged_variant_of<64, full_mask, e4m3>("d64_full_paged_e4m3"),
    paged_variant_of<64, causal_mask, e4m3>("d64_causal_paged_e4m3"),
};

const std::string& lines() {
    static const std::string text = [] {
        std::string all;
        for (const variant& one : variants) {
            all += std::string(one.name) + ' ' + std::to_string(64 * one.shape.consumer_warpgroups) + ' ' +
                   std::to_string(one.shape.block_n) + '\n';
        }
        return all;
    }();
    return text;
}

}  // namespace

extern "C" {

// The variants, one per line: name, block_m, block_n.
const char* imbrex_attention_features() {
    return lines().c_str();
}

const char* imbrex_attention_features_last_error() {
    return bench::last_error().c_str();
}

int imbrex_attention_features_forward(const char* name, const attention_call* call) {
    return bench::status_of([&] {
        const auto found = std::find_if(std::begin(variants), std::end(variants),
                                        [=](const variant& one) { return one.name == name; });
        require(found != std::end(variants), "name: ", name, "; the variants are:\n", lines());
        found->launch(*call);
    });
}

}  // extern "C"
