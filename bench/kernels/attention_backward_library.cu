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

template <class Call>
void with_kernel(bool causal, bool deterministic, const Call& call) {
    if (deterministic) {
        causal ? call(deterministic_backward<causal_mask>{}) : call(deterministic_backward<full_mask>{});
    } else {
        causal ? call(backward<causal_mask>{}) : call(backward<full_mask>{});
    }
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
        const auto view = [&](int index, int rows, int of_heads) {
            return batch_sequence_head(static_cast<bf16*>(tensors[index]), batch, rows, of_heads, head_dim);
        };
        const auto input = [&](int index, int rows, int of_heads) {
            return batch_sequence_head(static_cast<const bf16*>(tensors[index]), batch, rows, of_heads, head_dim);
        };
        attention_backward_problem<bf16> p{.q = input(0, seqlen_q, heads),
                                           .k = input(1, seqlen_k, kv_heads),
                                           .v = input(2, seqlen_k, kv_heads),
                                           .out = input(3, seqlen_q, heads),
                                           .d_out = input(4, seqlen_q, heads),
                                           .lse2 = batch_head_rows(lse2, heads, seqlen_q),
                                           .d_q = view(5, seqlen_q, heads),
                                           .d_k = view(6, seqlen_k, kv_heads),
                                           .d_v = view(7, seqlen_k, kv_heads),
                                           .scale = scale};
        with_kernel(causal != 0, deterministic != 0, [&](auto chosen) {
            using attention = decltype(chosen);
            if (workspace == nullptr) {
                *workspace_bytes = static_cast<std::int64_t>(attention::workspace_bytes(p));
                return;
            }
            p.workspace = workspace;
            p.workspace_bytes = static_cast<std::size_t>(*workspace_bytes);
            attention::launch(world::device, p, {}, {}, stream);
        });
    });
}

}  // extern "C"
