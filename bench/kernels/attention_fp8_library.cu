// 8-bit attention forward kernels behind C functions, so that bench/kernels/attention_fp8.py can call them on PyTorch
// tensors. "d128_fast" and "d128_promoted" are the launcher's choices on Hopper for head_dim 128, "d128_ada_fast" and
// "d128_ada_promoted" the Ada-class kernel. Every other variant is one tile shape, named by its accumulation, consumer
// warpgroups, block_n and the columns of a promoted product. "shared4" is promoted in shared memory after every 4 key
// tiles: of 224 keys, of 192 with a causal mask.
#include <imbrex/kernels/attention/ampere.hpp>
#include <imbrex/kernels/attention_fp8.hpp>

#include "attention_calls.hpp"

#include <algorithm>
#include <string>
#include <string_view>

using namespace imbrex;

namespace {

constexpr auto fast = fp8_accumulation::fast, promoted = fp8_accumulation::promoted;
using problem = attention_fp8_problem<bf16>;
using call = void (*)(const problem&, cudaStream_t);

template <int HeadDim, fp8_accumulation Sum, class Mask>
void launch_heuristic(const problem& p, cudaStream_t stream) {
    constexpr attention_fp8_options options{.head_dims = {HeadDim}, .accumulation = Sum};
    attention_fp8<bf16, options, Mask>::launch(world::device, p, {}, {}, stream);
}

template <int HeadDim, fp8_accumulation Sum, attention_fp8_shape Shape, class Mask>
void launch_shape(const problem& p, cudaStream_t stream) {
    using kernel = attention_fp8_hopper<bf16, HeadDim, Mask, score_mod::identity, fp8_scaling::per_tensor, Sum,
                                        fp8_v_layout::row_major, Shape>;
    const int num_sms = imbrex::num_sms(world::device);
    const auto arguments = attention_fp8_arguments<kernel>(p, Mask{}, score_mod::identity{}, num_sms);
    device::launch<kernel>({std::min(num_sms, arguments.scheduler.total(arguments.lengths))}, arguments, stream);
}

template <int HeadDim, fp8_accumulation Sum, class Mask>
void launch_ada(const problem& p, cudaStream_t stream) {
    using kernel = attention_fp8_ada<bf16, HeadDim, Mask, score_mod::identity, fp8_scaling::per_tensor, Sum>;
    const auto arguments = attention_fp8_arguments<kernel>(p, Mask{}, score_mod::identity{}, 1);
    device::launch<kernel>({arguments.scheduler.total(arguments.lengths)}, arguments, stream);
}

// The 16-bit Ampere-class kernel, for comparison with the Ada-class one. The tensors are bf16, [batch, sequence, head,
// head_dim].
struct bf16_call {
    const void *q, *k, *v;
    void* out;
    int batch, heads, seqlen;
    float scale;
};
template <int HeadDim, class Mask>
void launch_bf16_ampere(const bf16_call& p, cudaStream_t stream) {
    using kernel = attention_ampere<bf16, HeadDim, HeadDim, Mask>;
    const auto view = [&](auto* pointer) { return batch_sequence_head(pointer, p.batch, p.seqlen, p.heads, HeadDim); };
    typename kernel::arguments arguments{};
    arguments.q = view(static_cast<const bf16*>(p.q));
    arguments.k = view(static_cast<const bf16*>(p.k));
    arguments.v = view(static_cast<const bf16*>(p.v));
    arguments.out = view(static_cast<bf16*>(p.out));
    arguments.scale = p.scale;
    arguments.scale_log2 = scale_log2_after(score_mod::identity{}, p.scale);
    arguments.scheduler = {p.batch, p.heads, ceil_div(p.seqlen, kernel::block_m), 0};
    arguments.lengths = {p.seqlen, p.seqlen};
    arguments.q_heads_per_kv_head = 1;
    device::launch<kernel>({arguments.scheduler.total(arguments.lengths)}, arguments, stream);
}

struct variant {
    std::string_view name;
    int head_dim;
    call full;
    call causal;
};
template <int HeadDim, fp8_accumulation Sum>
constexpr variant heuristic_of(std::string_view name) {
    return {name, HeadDim, launch_heuristic<HeadDim, Sum, full_mask>, launch_heuristic<HeadDim, Sum, causal_mask>};
}
template <int HeadDim, fp8_accumulation Sum>
constexpr variant ada_of(std::string_view name) {
    return {name, HeadDim, launch_ada<HeadDim, Sum, full_mask>, launch_ada<HeadDim, Sum, causal_mask>};
}
template <int HeadDim, fp8_accumulation Sum, attention_fp8_shape Shape>
constexpr variant variant_of(std::string_view name) {
    return {name, HeadDim, launch_shape<HeadDim, Sum, Shape, full_mask>,
            launch_shape<HeadDim, Sum, Shape, causal_mask>};
}

template <int Interval>
constexpr variant shared_variant_of(std::string_view name) {
    return {
        name, 128,
        launch_shape<128, promoted, attention_fp8_shape{.block_n = 224, .promotion_interval = Interval}, full_mask>,
        launch_shape<128, promoted, attention_fp8_shape{.block_n = 192, .promotion_interval = Interval}, causal_mask>};
}

constexpr variant variants[] = {
    heuristic_of<128, fast>("d128_fast"),
    heuristic_of<128, promoted>("d128_promoted"),
    heuristic_of<64, fast>("d64_fast"),
    heuristic_of<64, promoted>("d64_promoted"),
    heuristic_of<256, fast>("d256_fast"),
    heuristic_of<256, promoted>("d256_promoted"),
    ada_of<128, fast>("d128_ada_fast"),
    ada_of<128, promoted>("d128_ada_promoted"),
    ada_of<64, fast>("d64_ada_fast"),
    ada_of<64, promoted>("d64_ada_promoted"),
    variant_of<128, fast, attention_fp8_shape{.block_n = 128}>("d128_fast_2x128"),
    variant_of<128, fast, attention_fp8_shape{.block_n = 160}>("d128_fast_2x160"),
    variant_of<128, fast, attention_fp8_shape{.block_n = 192}>("d128_fast_2x192"),
    variant_of<128, fast, attention_fp8_shape{.block_n = 224}>("d128_fast_2x224"),
    variant_of<128, promoted, attention_fp8_shape{.block_n = 128}>("d128_promoted_2x128"),
    variant_of<128, promoted, attention_fp8_shape{.block_n = 128, .product_columns = 64}>("d128_promoted_2x128_64"),
    variant_of<128, promoted, attention_fp8_shape{.block_n = 160, .product_columns = 64}>("d128_promoted_2x160_64"),
    shared_variant_of<2>("d128_promoted_shared2"),
    shared_variant_of<4>("d128_promoted_shared4"),
    variant_of<64, fast, attention_fp8_shape{.block_n = 192}>("d64_fast_2x192"),
    variant_of<64, fast, attention_fp8_shape{3, 128, 0, 2, 32, 160}>("d64_fast_3x128"),
    variant_of<64, promoted, attention_fp8_shape{.block_n = 128}>("d64_promoted_2x128"),
};

const std::string& names() {
    static const std::string lines = [] {
        std::string text;
        for (const variant& one : variants) text += std::string(one.name) + '\n';
        return text;
    }();
    return lines;
}

}  // namespace

extern "C" {

// The names of the variants, one per line.
const char* imbrex_attention_fp8_variants() {
    return names().c_str();
}

const char* imbrex_attention_fp8_last_error() {
    return bench::last_error().c_str();
}

// q, k, v and out are bf16 [batch, sequence, head, head_dim], all of one length.
int imbrex_attention_bf16_ampere(const void* q, const void* k, const void* v, void* out, int batch, int heads,
                                 int seqlen, int head_dim, int causal, float scale, void* stream) {
    return bench::status_of([&] {
        require(head_dim == 64 || head_dim == 128, "head_dim: ", head_dim, "; 64 or 128");
        const auto chosen =
            head_dim == 64 ? (causal != 0 ? launch_bf16_ampere<64, causal_mask> : launch_bf16_ampere<64, full_mask>)
                           : (causal != 0 ? launch_bf16_ampere<128, causal_mask> : launch_bf16_ampere<128, full_mask>);
        chosen({q, k, v, out, batch, heads, seqlen, scale}, static_cast<cudaStream_t>(stream));
    });
}

// q, k, v are e4m3 [batch, sequence, head, head_dim], out is bf16, lse2 [batch, head, query]; `descale` has the scales
// of Q, K and V in device memory.
int imbrex_attention_fp8_forward(const char* name, const void* q, const void* k, const void* v, void* out, float* lse2,
                                 const float* descale, int batch, int heads, int kv_heads, int seqlen_q, int seqlen_k,
                                 int head_dim, int causal, float scale, void* stream) {
    return bench::status_of([&] {
        const auto found = std::find_if(std::begin(variants), std::end(variants), [=](const variant& one) {
            return one.name == name && one.head_dim == head_dim;
        });
        require(found != std::end(variants), "variant: ", name, " for head_dim ", head_dim, "; the variants are:\n",
                names());
        const auto input = [&](const void* pointer, int rows, int count) {
            return batch_sequence_head(static_cast<const e4m3*>(pointer), batch, rows, count, head_dim);
        };
        problem p{};
        p.q = input(q, seqlen_q, heads);
        p.k = input(k, seqlen_k, kv_heads);
        p.v = input(v, seqlen_k, kv_heads);
        p.out = batch_sequence_head(static_cast<bf16*>(out), batch, seqlen_q, heads, head_dim);
        p.lse2 = batch_head_rows(lse2, heads, seqlen_q);
        p.q_descale = {descale};
        p.k_descale = {descale + 1};
        p.v_descale = {descale + 2};
        p.scale = scale;
        (causal != 0 ? found->causal : found->full)(p, static_cast<cudaStream_t>(stream));
    });
}

}  // extern "C"
