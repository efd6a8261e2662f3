// Attention backward behind C functions, so that bench/kernels/attention_backward.py can call it on PyTorch tensors,
// next to the peers.
#include <imbrex/kernels/attention_backward.hpp>

#include "attention_calls.hpp"

#include <cstdint>

using namespace imbrex;

namespace {

template <class Mask>
using backward = attention_backward<bf16, attention_backward_options{.head_dims = {64, 96, 128, 256}}, Mask>;
template <class Mask>
using deterministic_backward = attention_backward<
    bf16, attention_backward_options{.head_dims = {64, 128}, .targets = kernel_targets::hopper, .deterministic = true},
    Mask>;

// What attention_backward_accuracy.py measures besides.
template <class Mask, class Score = score_mod::identity>
using feature_backward =
    attention_backward<bf16, attention_backward_options{.head_dims = {64, 128}, .targets = kernel_targets::hopper},
                       Mask, Score>;

// Calls call(attention_backward type, mask, score_mod).
template <class Call>
void with_kernel(bool causal, bool deterministic, const Call& call) {
    const auto of_mask = [&](auto mask) {
        using mask_type = decltype(mask);
        if (deterministic) {
            call(deterministic_backward<mask_type>{}, mask, score_mod::identity{});
        } else {
            call(backward<mask_type>{}, mask, score_mod::identity{});
        }
    };
    causal ? of_mask(causal_mask{}) : of_mask(full_mask{});
}

struct all_tensors {
    void** tensors;
    float* lse2;
    int batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim;
    float scale;

    attention_backward_problem<bf16> problem() const {
        const auto view = [&](int index, int rows, int of_heads) {
            return batch_sequence_head(static_cast<bf16*>(tensors[index]), batch, rows, of_heads, head_dim);
        };
        const auto input = [&](int index, int rows, int of_heads) {
            return batch_sequence_head(static_cast<const bf16*>(tensors[index]), batch, rows, of_heads, head_dim);
        };
        return {.q = input(0, seqlen_q, heads),
                .k = input(1, seqlen_k, kv_heads),
                .v = input(2, seqlen_k, kv_heads),
                .out = input(3, seqlen_q, heads),
                .d_out = input(4, seqlen_q, heads),
                .lse2 = batch_head_rows(lse2, heads, seqlen_q),
                .d_q = view(5, seqlen_q, heads),
                .d_k = view(6, seqlen_k, kv_heads),
                .d_v = view(7, seqlen_k, kv_heads),
                .scale = scale};
    }
};

// With a null workspace, writes its size to workspace_bytes and launches nothing.
template <class Attention, class Mask, class Score>
void launch(const Attention&, attention_backward_problem<bf16> p, const Mask& mask, const Score& score, void* workspace,
            std::int64_t* workspace_bytes, void* stream) {
    if (workspace == nullptr) {
        *workspace_bytes = static_cast<std::int64_t>(Attention::workspace_bytes(p));
        return;
    }
    p.workspace = workspace;
    p.workspace_bytes = static_cast<std::size_t>(*workspace_bytes);
    Attention::launch(world::device, p, mask, score, stream);
}

}  // namespace

extern "C" {

const char* imbrex_attention_backward_last_error() {
    return bench::last_error().c_str();
}

// Tensors are bf16 [batch, sequence, head, head_dim]: q, k, v, out, d_out, d_q, d_k, d_v. lse2 [batch, head, query]. With
// a null workspace, writes its size to workspace_bytes and launches nothing.
int imbrex_attention_backward(void** tensors, float* lse2, int batch, int heads, int kv_heads, int seqlen_q,
                              int seqlen_k, int head_dim, int causal, int deterministic, float scale, void* workspace,
                              std::int64_t* workspace_bytes, void* stream) {
    return bench::status_of([&] {
        const all_tensors all{tensors, lse2, batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, scale};
        with_kernel(causal != 0, deterministic != 0, [&](const auto& attention, const auto& mask, const auto& score) {
            launch(attention, all.problem(), mask, score, workspace, workspace_bytes, stream);
        });
    });
}

// The same with one feature. window > 0: causal, and that many keys to the left. cap > 0: causal, softcap. bias and d_bias
// not null: full, an additive bias fp32 [batch, head, query, key] and its gradient, which the launch adds to.
int imbrex_attention_backward_feature(void** tensors, float* lse2, int batch, int heads, int kv_heads, int seqlen_q,
                                      int seqlen_k, int head_dim, int window, float cap, const float* bias,
                                      float* d_bias, float scale, void* workspace, std::int64_t* workspace_bytes,
                                      void* stream) {
    return bench::status_of([&] {
        const all_tensors all{tensors, lse2, batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, scale};
        const auto call = [&](const auto& attention, const auto& mask, const auto& score) {
            launch(attention, all.problem(), mask, score, workspace, workspace_bytes, stream);
        };
        if (window > 0) {
            call(feature_backward<window_mask>{}, window_mask{window, 0}, score_mod::identity{});
        } else if (cap > 0) {
            call(feature_backward<causal_mask, score_mod::softcap>{}, causal_mask{}, score_mod::softcap{cap});
        } else {
            const std::int64_t of_head = std::int64_t{seqlen_q} * seqlen_k;
            const score_mod::additive_bias_with_gradient score{{bias, heads * of_head, of_head, seqlen_k}, d_bias};
            call(feature_backward<full_mask, score_mod::additive_bias_with_gradient>{}, full_mask{}, score);
        }
    });
}

}  // extern "C"
