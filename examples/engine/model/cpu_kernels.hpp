// The kernels of the model on a CPU: GEMV and GEMM over rows of weights (kernels/linear.hpp), SIMT paged attention,
// RMSNorm and SwiGLU, in float. Weights are read where they lie in the mapped file, or in the requested format, once per
// GEMM. cuda_kernels.hpp is the GPU counterpart.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/simt_paged_attention.hpp>
#include <imbrex/kernels/swiglu.hpp>

#include <cstdint>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cpu_matrix.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/step_inputs.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {

class cpu_kernels {
  public:
    using element = float;
    using matrix = cpu_matrix;
    using table = cpu_embedding_table;
    struct normed_matrix {
        normed_matrix() = default;
        normed_matrix(const stacked_weights& from, const std::vector<float>& norm, const runner_options& options)
            : weights(from, options), norm(options.where, norm) {}

        cpu_matrix weights;
        world_buffer<float> norm;
    };

    cpu_kernels(const model_config& config, const runner_options& options, void* stream)
        : where_(options.where),
          stream_(stream),
          hidden_(config.hidden_size),
          epsilon_(static_cast<float>(config.rms_norm_eps)),
          normed_(where_, buffer_rows(options) * config.hidden_size),
          pending_residual_(where_, buffer_rows(options) * config.hidden_size),
          gate_up_(where_, buffer_rows(options) * 2 * config.intermediate_size) {}

    // Reserves buffers for this many rows.
    static std::int64_t buffer_rows(const runner_options& options) { return options.max_num_batched_tokens; }

    // A step that samples nothing leaves a pending residual; drop it.
    void begin(const step_inputs&) { has_pending_residual_ = false; }

    void embed_tokens(const table& from, const int* ids, const row_view<float>& out) {
        from.gather(ids, out.extents[0], out.pointer);
    }

    // out = RMSNorm(x)
    void normalise(const world_buffer<float>& weight, const world_buffer<float>& x, int rows, float* out) {
        const auto view = [&](float* values) { return as_rows(values, rows, hidden_); };
        rms_norm_problem<float> p{.x = as_rows<const float>(x.data(), rows, hidden_),
                                  .weight = weight.data(),
                                  .out = view(out),
                                  .epsilon = epsilon_};
        if (has_pending_residual_) {
            p.x = as_rows<const float>(pending_residual_.data(), rows, hidden_);
            p.residual = view(x.data());
            has_pending_residual_ = false;
        }
        rms_norm<float>::launch(where_, p, stream_);
    }

    void matmul(const matrix& with, const float* x, int rows, float* out, const float* bias = nullptr) {
        with.matmul(where_, x, rows, out, bias, stream_);
    }

    void rms_norm_matmul(const normed_matrix& with, const world_buffer<float>& x, int rows, float* out,
                         const float* bias) {
        normalise(with.norm, x, rows, normed_.data());
        matmul(with.weights, normed_.data(), rows, out, bias);
    }

    // SwiGLU: silu(gate) * up. The matrix has the rows of both.
    void rms_norm_swiglu(const normed_matrix& with, const world_buffer<float>& x, int rows, float* out) {
        const std::int64_t columns = with.weights.rows() / 2;
        rms_norm_matmul(with, x, rows, gate_up_.data(), nullptr);
        swiglu_activation<float>::launch(where_,
                                         {.gate = gate_of<const float>(gate_up_.data(), rows, columns),
                                          .up = up_of<const float>(gate_up_.data(), rows, columns),
                                          .out = as_rows(out, rows, columns)},
                                         stream_);
    }

    // out += product. The addition is deferred and fused into the next RMSNorm.
    void matmul_add_residual(const matrix& with, const float* x, int rows, world_buffer<float>&) {
        matmul(with, x, rows, pending_residual_.data());
        has_pending_residual_ = true;
    }

    void paged_attention(const attention_problem<float>& p, int window) {
        if (window == 0) {
            simt_paged_attention<float, all_simt_head_dims, causal_mask>::launch(where_, p, {}, {}, stream_);
        } else {
            simt_paged_attention<float, all_simt_head_dims, window_mask>::launch(where_, p, {window - 1, 0}, {},
                                                                                 stream_);
        }
    }

  private:
    world where_;
    void* stream_;
    std::int64_t hidden_;
    float epsilon_;
    world_buffer<float> normed_, pending_residual_,
        gate_up_;  // normalised rows; a pending product; gate and up
    bool has_pending_residual_ = false;
};

}  // namespace imbrex::engine
