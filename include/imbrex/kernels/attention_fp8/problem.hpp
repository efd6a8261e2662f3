// attention_fp8_problem: the arguments of a call of attention_fp8, and their checks. Q, K, V and O are strided views as
// in attention/problem.hpp; Q, K and V are e4m3 with scales (descale factors). Arguments that do not fit together throw
// imbrex::error with a message that names the argument, its value and what is allowed.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_fp8/scaling.hpp>
#include <imbrex/kernels/attention_fp8/shape.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace imbrex {

template <class Out>
struct attention_fp8_problem {
    attention_view<const e4m3> q;  // [batch, head, query, head_dim]
    attention_view<const e4m3> k;  // [batch, kv_head, key, head_dim]
    attention_view<const e4m3> v;  // [batch, kv_head, key, head_dim]; fp8_v_layout::k_major: [.., head_dim, key]
    attention_view<Out> out;       // [batch, head, query, head_dim]: bf16, fp16 or e4m3
    descale_view q_descale = {};   // value = scale * element; scales are positive
    descale_view k_descale = {};
    descale_view v_descale = {};
    // Of an e4m3 O, chosen by the caller, per tensor or per head: elements are value / scale, saturated to +-448.
    descale_view out_descale = {};
    attention_row_view lse2 = {};     // base-2 LSE, optional
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim) by default
    const float* sinks = nullptr;     // attention sinks: a logit per head, or null
    const int* seqused_k = nullptr;   // the number of keys of each sequence of a padded batch or paged KV, or null
    varlen_sequences varlen = {};
    imbrex::paged_kv paged_kv = {};  // for kv_layout::paged: K and V are [page, kv_head, row in page, head_dim]
    int* tile_counter = nullptr;     // dynamic tile scheduling, as in attention_problem

    // The same call as a 16-bit one, for what both have in common: V always as [.., key, head_dim].
    attention_problem<Out, attention_output_mode::normalised, e4m3> without_scales(fp8_v_layout layout) const {
        attention_problem<Out, attention_output_mode::normalised, e4m3> same{};
        same.q = {reinterpret_cast<const Out*>(q.pointer), q.extents, q.strides};
        same.k = k;
        same.v = v;
        if (layout == fp8_v_layout::k_major) std::swap(same.v.extents.given[2], same.v.extents.given[3]);
        same.out = out;
        same.lse2 = lse2;
        same.scale = scale;
        same.sinks = sinks;
        same.seqused_k = seqused_k;
        same.varlen = varlen;
        same.paged_kv = paged_kv;
        return same;
    }
    // The keys of a sequence, as far as they are known on the host: of varlen the average, otherwise the most.
    int average_keys(fp8_v_layout layout, kv_layout kv) const {
        const auto common = without_scales(layout);
        const bool varlen_k = kv == kv_layout::contiguous && varlen.count > 0;
        return common.seqlen_k(kv) / (varlen_k ? varlen.count : 1);
    }
};

namespace detail {

inline void require_descale(const descale_view& scales, const char* name, const char* heads_name, std::int64_t heads) {
    require(scales.heads_per_scale >= 1 && heads % scales.heads_per_scale == 0, name,
            ".heads_per_scale: ", scales.heads_per_scale, "; must be a divisor of the ", heads, " heads of ",
            heads_name);
    require(scales.batch_stride >= 0, name, ".batch_stride: ", scales.batch_stride, "; it must not be negative");
    require(scales.head_stride >= 0, name, ".head_stride: ", scales.head_stride, "; it must not be negative");
}

// Reads the first scale of every head of a batch entry, or of a page: only for scales in host memory.
template <class Scaling>
void require_valid_descale(const descale_view& scales, const char* name, const char* owner, int index, int heads) {
    for (int head = 0; scales.pointer != nullptr && head < heads; ++head) {
        const float found = Scaling{}(scales, index, head, 0);
        require(std::isfinite(found) && found >= 0, name, " of ", owner, " ", index, ", head ", head, ": ", found,
                "; scales are finite and not negative");
    }
}

template <class Scaling, class Out>
void require_valid_descales(const attention_fp8_problem<Out>& p, int batches, int seqlen_k) {
    const int heads = static_cast<int>(p.q.extents[1]), kv_heads = static_cast<int>(p.k.extents[1]);
    const auto require_kv = [&](const char* owner, int index) {
        require_valid_descale<Scaling>(p.k_descale, "k_descale", owner, index, kv_heads);
        require_valid_descale<Scaling>(p.v_descale, "v_descale", owner, index, kv_heads);
    };
    for (int batch = 0; batch < batches; ++batch) {
        require_valid_descale<Scaling>(p.q_descale, "q_descale", "batch entry", batch, heads);
        require_valid_descale<Scaling>(p.out_descale, "out_descale", "batch entry", batch, heads);
        if constexpr (fp8_scales_by_page<Scaling>()) {
            const int keys = p.seqused_k == nullptr ? seqlen_k : p.seqused_k[batch];
            for (std::int64_t page = 0; page * p.k.rows() < keys; ++page) {
                require_kv("page", p.paged_kv.block_table[std::int64_t{batch} * p.paged_kv.max_blocks_per_seq + page]);
            }
        } else {
            require_kv("batch entry", batch);
        }
    }
}

}  // namespace detail

template <class Scaling, class Out>
void require_attention_fp8(world where, const attention_fp8_problem<Out>& p, fp8_v_layout layout, kv_layout kv) {
    using namespace detail;
    if (layout == fp8_v_layout::k_major) {  // otherwise the messages below name the right dimensions
        require_view(p.v, "v");
        require_same(p.v.extents[3], "v", 3, p.k.extents[2], "k", "rows");
        require_same(p.out.extents[3], "out", 3, p.v.extents[2], "v", "rows");
    }
    const auto common = p.without_scales(layout);
    require_attention(where, common, kv);
    if constexpr (fp8_scales_by_page<Scaling>()) {
        require(p.k.extents[2] % Scaling::kv_block == 0, "k.extents[2]: ", p.k.extents[2],
                "; with this fp8_scaling::per_page the rows of a page are a multiple of ", Scaling::kv_block);
    }
    const int heads = static_cast<int>(p.q.extents[1]), kv_heads = static_cast<int>(p.k.extents[1]);
    require_descale(p.q_descale, "q_descale", "q", heads);
    require_descale(p.k_descale, "k_descale", "k", kv_heads);
    require_descale(p.v_descale, "v_descale", "v", kv_heads);
    require_descale(p.out_descale, "out_descale", "q", heads);
    require(sizeof(Out) == 1 || p.out_descale.pointer == nullptr, "out_descale.pointer: ", p.out_descale.pointer,
            "; must be null: only an e4m3 output has scales");
    if (where == world::device) return;
    for (int i = 0; layout == fp8_v_layout::k_major && i < p.varlen.count; ++i) {
        require(p.varlen.cu_seqlens_k[i] % 16 == 0, "varlen.cu_seqlens_k[", i, "]: ", p.varlen.cu_seqlens_k[i],
                "; with a K-major V, sequences must begin at multiples of 16");
    }
    require_valid_descales<Scaling>(p, common.batches(), common.seqlen_k(kv));
}

}  // namespace imbrex
