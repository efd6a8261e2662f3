// The kernels of the model on a CPU: GEMV and GEMM over rows of weights (kernels/linear.hpp), SIMT paged attention,
// norms and gated activations, in float. Weights are read where they lie in the mapped file, or in the requested format,
// once per GEMM. cuda_kernels.hpp is the GPU counterpart.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/swiglu.hpp>

#include <cstdint>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cpu_attention.hpp"
#include "engine/model/cpu_experts.hpp"
#include "engine/model/cpu_matrix.hpp"
#include "engine/model/norm.hpp"
#include "engine/model/paged_attention.hpp"
#include "engine/model/row_update.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/step_inputs.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {

class cpu_kernels {
  public:
    using element = float;
    using matrix = cpu_matrix;
    using table = cpu_embedding_table;
    using experts = cpu_experts;
    // A matrix and the norm before it, if there is one.
    struct normed_matrix {
        normed_matrix() = default;
        normed_matrix(const stacked_weights& from, const norm_weights& before, const runner_options& options)
            : weights(from, options), norm(options.where, before) {}

        cpu_matrix weights;
        model_norm norm;
    };

    cpu_kernels(const model_config& config, const runner_options& options, void* stream)
        : where_(options.where),
          stream_(stream),
          hidden_(config.hidden_size),
          activation_(config.activation),
          attention_softcap_(static_cast<float>(config.attention_softcap)),
          kv_cache_(options.kv_cache),
          normed_(where_, buffer_rows(options) * config.hidden_size),
          pending_residual_(where_, buffer_rows(options) * config.hidden_size),
          gate_up_(where_, buffer_rows(options) * 2 * config.intermediate_size) {
        if (config.experts.given()) expert_mlp_ = {config, options, stream};
    }

    // Reserves buffers for this many rows.
    static std::int64_t buffer_rows(const runner_options& options) { return options.max_num_batched_tokens; }

    // A step that samples nothing leaves a pending residual; drop it.
    void begin(const step_inputs&) { has_pending_residual_ = false; }

    void embed_tokens(const table& from, const int* ids, const row_view<float>& out, float factor) {
        from.gather(ids, out.extents[0], factor, out.pointer);
    }

    // out = norm(x)
    void normalise(const model_norm& norm, const world_buffer<float>& x, int rows, float* out) {
        if (has_pending_residual_) {
            norm.launch(where_, pending_residual_.data(), out, rows, x.data(), stream_);
        } else {
            norm.launch<float>(where_, x.data(), out, rows, nullptr, stream_);
        }
        has_pending_residual_ = false;
    }

    // Adds what is pending, so that x can be read.
    void finish_residual(const world_buffer<float>& x, int rows) {
        if (has_pending_residual_)
            update_rows<float>(where_, x.data(), pending_residual_.data(), rows, hidden_, add_to{}, stream_);
        has_pending_residual_ = false;
    }

    void matmul(const matrix& with, const float* x, int rows, float* out, const float* bias = nullptr) {
        with.matmul(where_, x, rows, out, bias, stream_);
    }

    void norm_matmul(const normed_matrix& with, const world_buffer<float>& x, int rows, float* out, const float* bias) {
        if (with.norm.given()) {
            normalise(with.norm, x, rows, normed_.data());
            return matmul(with.weights, normed_.data(), rows, out, bias);
        }
        finish_residual(x, rows);
        matmul(with.weights, x.data(), rows, out, bias);
    }

    // Gated MLP: activation(gate) * up. The matrix has the rows of both.
    void norm_glu(const normed_matrix& with, const world_buffer<float>& x, int rows, float* out) {
        norm_matmul(with, x, rows, gate_up_.data(), nullptr);
        switch (activation_) {
            case gate_activation::silu:
                return activate<activation::silu>(with.weights.rows() / 2, rows, out);
            case gate_activation::gelu_tanh:
                return activate<activation::gelu_tanh>(with.weights.rows() / 2, rows, out);
        }
    }

    // out += norm(x W^T + bias). The addition is deferred and fused into the next norm.
    void add_projection(const residual_projection<matrix>& with, const float* x, int rows, world_buffer<float>& out) {
        finish_residual(out, rows);
        matmul(with.weights, x, rows, pending_residual_.data(), with.bias.data());
        if (with.after.given())
            with.after.launch<float>(where_, pending_residual_.data(), pending_residual_.data(), rows, nullptr,
                                     stream_);
        has_pending_residual_ = true;
    }

    // out += the mixture of experts of norm(out). The addition is deferred as above.
    void add_experts(const experts& with, int rows, world_buffer<float>& out) {
        normalise(with.norm, out, rows, normed_.data());
        expert_mlp_.compute(with, normed_.data(), rows, pending_residual_.data());
        has_pending_residual_ = true;
    }

    void append_and_attend(const paged_attention<float>& p) {
        cpu_paged_attention(where_, p, kv_cache_, attention_softcap_, stream_);
    }

  private:
    template <class Activation>
    void activate(std::int64_t columns, int rows, float* out) {
        swiglu_activation<float, Activation>::launch(where_,
                                                     {.gate = gate_of<const float>(gate_up_.data(), rows, columns),
                                                      .up = up_of<const float>(gate_up_.data(), rows, columns),
                                                      .out = as_rows(out, rows, columns)},
                                                     stream_);
    }

    world where_;
    void* stream_;
    std::int64_t hidden_;
    gate_activation activation_;
    float attention_softcap_;
    kv_cache_format kv_cache_;
    world_buffer<float> normed_, pending_residual_, gate_up_;  // normalised rows; a pending product; gate and up
    cpu_expert_mlp expert_mlp_;
    bool has_pending_residual_ = false;
};

}  // namespace imbrex::engine
