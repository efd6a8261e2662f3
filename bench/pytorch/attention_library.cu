// Launches of attention in a loop of C++, for bench/pytorch/attention.py: what the operators of imbrex_torch are compared
// with.
#include <imbrex/kernels/attention_backward.hpp>
#include <imbrex/kernels/attention_forward.hpp>

#include "../kernels/attention_calls.hpp"

#include <cuda_runtime_api.h>

#include <chrono>

using namespace imbrex;

namespace {

constexpr attention_options options{.head_dims = {64, 128}, .targets = kernel_targets::hopper};
constexpr attention_backward_options backward_options{.head_dims = {64, 128}, .targets = kernel_targets::hopper};

struct events {
    cudaEvent_t begin, end;
    events() {
        cudaEventCreate(&begin);
        cudaEventCreate(&end);
    }
    ~events() {
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
    }
};

// q, k, v, out, d_out, d_q, d_k, d_v: [batch, sequence, heads, head_dim].
struct tensors {
    void** all;
    float* lse2;
    int batch, seqlen, heads, head_dim;

    template <class T>
    attention_view<T> view(int index) const {
        return batch_sequence_head(static_cast<T*>(all[index]), batch, seqlen, heads, head_dim);
    }
    attention_problem<bf16> forward() const {
        return {.q = view<const bf16>(0),
                .k = view<const bf16>(1),
                .v = view<const bf16>(2),
                .out = view<bf16>(3),
                .lse2 = batch_head_rows(lse2, heads, seqlen)};
    }
    attention_backward_problem<bf16> backward(void* workspace, std::size_t bytes) const {
        attention_backward_problem<bf16> p{.q = view<const bf16>(0),
                                           .k = view<const bf16>(1),
                                           .v = view<const bf16>(2),
                                           .out = view<const bf16>(3),
                                           .d_out = view<const bf16>(4),
                                           .lse2 = batch_head_rows(lse2, heads, seqlen),
                                           .d_q = view<bf16>(5),
                                           .d_k = view<bf16>(6),
                                           .d_v = view<bf16>(7)};
        p.workspace = workspace;
        p.workspace_bytes = bytes;
        return p;
    }
};

template <class Mask>
void launch(const tensors& t, bool with_backward, void* workspace, std::size_t bytes, void* stream) {
    attention_forward<bf16, options, Mask>::launch(world::device, t.forward(), {}, {}, stream);
    if (with_backward) {
        attention_backward<bf16, backward_options, Mask>::launch(world::device, t.backward(workspace, bytes), {}, {}, stream);
    }
}

}  // namespace

extern "C" {

const char* imbrex_last_error() {
    return bench::last_error().c_str();
}

// Microseconds a launch (forward, or forward and backward): until the host has enqueued it, and until the device is done.
int imbrex_time_launches(void** all, float* lse2, int batch, int seqlen, int heads, int head_dim, int causal,
                         int with_backward, int launches, void* workspace, long long workspace_bytes, void* stream,
                         double* host, double* device) {
    return bench::status_of([&] {
        const tensors t{all, lse2, batch, seqlen, heads, head_dim};
        const events of;
        const auto several = [&] {
            for (int i = 0; i < launches; ++i) {
                causal ? launch<causal_mask>(t, with_backward, workspace, workspace_bytes, stream)
                       : launch<full_mask>(t, with_backward, workspace, workspace_bytes, stream);
            }
        };
        cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
        cudaEventRecord(of.begin, static_cast<cudaStream_t>(stream));
        const auto begin = std::chrono::steady_clock::now();
        several();
        const std::chrono::duration<double, std::micro> enqueued = std::chrono::steady_clock::now() - begin;
        cudaEventRecord(of.end, static_cast<cudaStream_t>(stream));
        cudaEventSynchronize(of.end);
        float milliseconds = 0;
        cudaEventElapsedTime(&milliseconds, of.begin, of.end);
        *host = enqueued.count() / launches;
        *device = milliseconds * 1e3 / launches;
    });
}

}  // extern "C"
