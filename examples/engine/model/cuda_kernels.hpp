// The kernels of the model on a GPU: GEMM and attention on tensor cores in bf16. If every sequence of a step has few
// tokens, one or with its draft tokens several, attention is paged decode (split-KV, GQA), otherwise attention forward
// over the paged KV cache. head_dims that
// are no multiple of 16, or larger than the listed ones, use SIMT paged attention. cpu_kernels.hpp is the CPU
// counterpart.
//
// The fastest kernel depends on the number of rows, and kernels differ in accumulation order. For batch invariance
// (runner_options::batch_invariant) the choice depends on the kind of a token instead:
//
//                         GEMM                                     attention
//   prompt tokens         large-M kernels; few rows are padded     forward over the paged KV cache
//   generated tokens,     GEMV, 8 rows at a time                   decode, split size 128
//   and logits
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/kernels/embedding.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/paged_append.hpp>
#include <imbrex/kernels/rms_norm_gemm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cuda_attention.hpp"
#include "engine/model/cuda_experts.hpp"
#include "engine/model/cuda_matrix.hpp"
#include "engine/model/norm.hpp"
#include "engine/model/paged_attention.hpp"
#include "engine/model/row_update.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/step_inputs.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// Tensor-core attention is instantiated for these head_dims; others use the next larger one.
template <int... HeadDims>
class cuda_kernels {
  public:
    using element = bf16;
    using matrix = cuda_matrix;
    using table = cuda_embedding_table;
    using experts = cuda_experts;

    // A matrix and the norm before it, if there is one. The weights of an RMSNorm are folded into bf16 matrices, so that
    // GEMV can fuse the norm; for more rows the norm then has weights of 1. Quantised matrices are left as they are, and
    // the norm keeps its weights.
    struct normed_matrix {
        normed_matrix() = default;
        normed_matrix(stacked_weights from, norm_weights before, const runner_options& options) {
            const bool becomes_bf16 = options.weights == weight_format::as_in_file && !cuda_matrix::keeps_types(from);
            norm_is_folded = before.is_rms() && (options.weights == weight_format::bf16 || becomes_bf16);
            if (norm_is_folded)
                from.multiply_columns(std::exchange(before.weight, std::vector(before.weight.size(), 1.0f)));
            weights = cuda_matrix(from, options);
            norm = {options.where, before};
        }

        cuda_matrix weights;
        model_norm norm;
        bool norm_is_folded = false;
    };

    cuda_kernels(const model_config& config, const runner_options& options, void* stream)
        : where_(options.where),
          stream_(stream),
          hidden_(config.hidden_size),
          activation_(config.activation),
          attention_softcap_(static_cast<float>(config.attention_softcap)),
          batch_invariant_(options.batch_invariant),
          max_weight_bytes_(max_weight_rows(config) * static_cast<std::size_t>(config.hidden_size) * sizeof(bf16)),
          normed_(where_, buffer_rows(options) * config.hidden_size) {
        if (config.norms != norm_place::before) sublayer_out_ = {where_, buffer_rows(options) * config.hidden_size};
        if (config.experts.given()) expert_mlp_ = {config, options, buffer_rows(options), stream};
    }

    // Reserves buffers for this many rows.
    static std::int64_t buffer_rows(const runner_options& options) {
        return options.batch_invariant ? std::max(options.max_num_batched_tokens, matrix::max_min_large_m)
                                       : options.max_num_batched_tokens;
    }

    void begin(const step_inputs& now) {
        step_kind_ = !batch_invariant_ ? step_kind::any : now.is_decode ? step_kind::decode : step_kind::prefill;
        decodes_ = step_kind_ == step_kind::decode || (step_kind_ == step_kind::any && now.has_few_tokens);
    }

    void embed_tokens(const table& from, const int* ids, const row_view<bf16>& out, float factor) {
        embedding<bf16>::launch(
            where_,
            {.table = as_rows(from.values(), from.rows(), from.columns()), .ids = ids, .out = out, .factor = factor},
            stream_);
    }

    // out = norm(x)
    void normalise(const model_norm& norm, const world_buffer<bf16>& x, int rows, bf16* out) {
        norm.launch<bf16>(where_, x.data(), out, rows, nullptr, stream_);
    }

    // Nothing is ever pending here.
    void finish_residual(const world_buffer<bf16>&, int) {}

    // Logits.
    template <class Out>
    void matmul(const matrix& with, const bf16* x, int rows, Out* out) {
        matmul_row_ranges(with, x, rows, out, batch_invariant_ ? step_kind::decode : step_kind::any,
                          [](row_range) { return epilogue::identity{}; });
    }

    void norm_matmul(const normed_matrix& with, const world_buffer<bf16>& x, int rows, bf16* out, const float* bias) {
        norm_and_matmul(with, x, rows, out, epilogue::bias<float>{{bias, with.weights.rows()}});
    }

    // Gated MLP: activation(gate) * up. The matrix has the rows of both.
    void norm_glu(const normed_matrix& with, const world_buffer<bf16>& x, int rows, bf16* out) {
        switch (activation_) {
            case gate_activation::silu:
                return norm_and_matmul(with, x, rows, out, epilogue::swiglu{});
            case gate_activation::gelu_tanh:
                return norm_and_matmul(with, x, rows, out, gelu_glu{});
        }
    }

    // out += norm(x W^T + bias). The GEMM adds where it is the last step.
    void add_projection(const residual_projection<matrix>& with, const bf16* x, int rows, world_buffer<bf16>& out) {
        const int columns = with.weights.rows();
        const epilogue::bias<float> bias{{with.bias.size() == 0 ? nullptr : with.bias.data(), columns}};
        if (!with.after.given()) {
            return matmul_row_ranges(with.weights, x, rows, out.data(), step_kind_, [&](row_range part) {
                bf16* const own = out.data() + std::int64_t{part.first} * columns;
                return bias_and_residual{bias, {gemm_matrix_view<const bf16>(own, part.count, columns)}};
            });
        }
        bf16* const sum = sublayer_out_.data();
        matmul_row_ranges(with.weights, x, rows, sum, step_kind_, [&](row_range) { return bias; });
        with.after.launch<bf16>(where_, sum, sum, rows, nullptr, stream_);
        update_rows<bf16>(where_, out.data(), sum, rows, columns, add_to{}, stream_);
    }

    // out += the mixture of experts of norm(out)
    void add_experts(const experts& with, int rows, world_buffer<bf16>& out) {
        const int tile_rows = step_kind_ == step_kind::decode    ? cuda_expert_mlp::few_rows
                              : step_kind_ == step_kind::prefill ? cuda_expert_mlp::most_rows
                                                                 : expert_mlp_.tile_rows_of(rows);
        const moe_routing routing = expert_mlp_.routing_of(rows, tile_rows);
        if (step_kind_ == step_kind::any && expert_mlp_.can_fuse(with, rows)) {
            expert_mlp_.norm_and_choose(with, out.data(), normed_.data(), routing);
        } else {
            normalise(with.norm, out, rows, normed_.data());
            const epilogue::bias<float> bias{{with.router_bias_or_null(), with.router.rows()}};
            matmul_row_ranges(with.router, normed_.data(), rows, expert_mlp_.logits(), step_kind_,
                              [&](row_range) { return bias; });
            expert_mlp_.choose(routing);
        }
        expert_mlp_.add(with, normed_.data(), routing, out.data());
    }

    void append_and_attend(const paged_attention<bf16>& with) {
        paged_append<bf16>::launch(where_, append_problem_of<bf16>(with), stream_);
        const attention_problem<bf16> p = attention_problem_of<bf16>(with);
        const attention_kind kind{with.window, attention_softcap_};
        if (p.head_dim_qk() % 16 != 0 || p.head_dim_qk() > std::max({HeadDims...})) {
            return cuda_simt_attention<bf16>::launch(where_, p, kind, stream_);
        }
        visit_attention_kind(kind, [&]<class Mask, class Score>(const Mask& mask, const Score& score) {
            if (decodes_) {
                using decode = cuda_decode<Mask, Score, HeadDims...>;
                const int split_size = batch_invariant_ ? batch_invariant_split_size : 0;
                void* const workspace = workspace_of(decode::workspace_bytes(where_, p, split_size));
                decode::launch(where_, p, mask, score, workspace, split_size, stream_);
            } else {
                cuda_prefill<Mask, Score, HeadDims...>::launch(where_, p, mask, score, stream_);
            }
        });
    }

  private:
    // With batch invariance, the kind of a step decides the kernels.
    enum class step_kind { any, prefill, decode };
    using gelu_glu = epilogue::glu<activation::gelu_tanh>;
    struct row_range {
        int first, count;
    };
    // Small enough that a single sequence occupies several SMs.
    static constexpr int batch_invariant_split_size = 128;

    // Of gate and up, or of Q, K and V.
    static std::size_t max_weight_rows(const model_config& config) {
        const int gate_up = config.experts.given() ? 0 : 2 * config.intermediate_size;
        return static_cast<std::size_t>(std::max(gate_up, (config.heads + 2 * config.kv_heads) * config.head_dim));
    }

    // Calls with each range of rows that has a launch of its own.
    template <class Call>
    static void for_row_ranges(int rows, int rows_per_launch, const Call& call) {
        for (int first = 0; first < rows; first += rows_per_launch)
            call(row_range{first, std::min(rows_per_launch, rows - first)});
    }

    // out = epilogue_of(range)(x W^T)
    template <class Out, class EpilogueOf>
    void matmul_row_ranges(const matrix& with, const bf16* x, int rows, Out* out, step_kind kind,
                           const EpilogueOf& epilogue_of) {
        const int computed = kind == step_kind::prefill ? std::max(rows, with.min_large_m()) : rows;
        const int rows_per_launch = kind == step_kind::decode ? matrix::max_gemv_rows : computed;
        for_row_ranges(computed, rows_per_launch, [&](row_range part) {
            const auto epilogue = epilogue_of(part);
            const std::int64_t results =
                epilogue::is_glu<std::remove_const_t<decltype(epilogue)>> ? with.rows() / 2 : with.rows();
            with.matmul(where_, x + std::int64_t{part.first} * with.columns(), part.count, out + part.first * results,
                        epilogue, stream_, dequantised_workspace(with, part.count));
        });
    }

    // The workspace for weights dequantised for many rows. With it they are rounded to bf16, in GEMV they are not: with
    // batch invariance there is no workspace.
    gemm_workspace dequantised_workspace(const matrix& with, int rows) {
        if (batch_invariant_ || !with.is_packed() || rows < matrix::min_dequantised_m) return {};
        if (dequantised_.bytes() == 0) dequantised_ = world_memory(where_, max_weight_bytes_);
        return {dequantised_.at(), dequantised_.bytes()};
    }

    template <class Epilogue>
    void norm_and_matmul(const normed_matrix& with, const world_buffer<bf16>& x, int rows, bf16* out,
                         const Epilogue& epilogue) {
        using product = rms_norm_gemm<bf16, bf16, Epilogue>;
        const cuda_matrix& weights = with.weights;
        const int rows_per_launch = step_kind_ == step_kind::decode ? matrix::max_gemv_rows : rows;
        if (with.norm_is_folded && step_kind_ != step_kind::prefill) {
            const int results = epilogue::is_glu<Epilogue> ? weights.rows() / 2 : weights.rows(), k = weights.columns();
            const auto problem_of = [&](row_range part) {
                return typename product::problem{part.count,
                                                 results,
                                                 k,
                                                 {x.data() + std::int64_t{part.first} * k},
                                                 {weights.values()},
                                                 {out + std::int64_t{part.first} * results}};
            };
            if (product::can_implement(where_, problem_of({0, std::min(rows_per_launch, rows)}))) {
                return for_row_ranges(rows, rows_per_launch, [&](row_range part) {
                    product::launch(where_, problem_of(part), epilogue, {with.norm.epsilon()}, stream_);
                });
            }
        }
        if (with.norm.given()) normalise(with.norm, x, rows, normed_.data());
        const bf16* const input = with.norm.given() ? normed_.data() : x.data();
        matmul_row_ranges(weights, input, rows, out, step_kind_, [&](row_range) { return epilogue; });
    }

    // Grows with number and length of sequences if the split size is fixed. Workspaces captured in CUDA graphs are kept.
    void* workspace_of(std::size_t bytes) {
        if (workspaces_.empty() || workspaces_.back().bytes() < bytes) workspaces_.emplace_back(where_, bytes);
        return workspaces_.back().at();
    }

    world where_;
    void* stream_;
    std::int64_t hidden_;
    gate_activation activation_;
    float attention_softcap_;
    bool batch_invariant_;
    std::size_t max_weight_bytes_;          // of the largest matrix of a layer as bf16
    step_kind step_kind_ = step_kind::any;  // of this step
    bool decodes_ = false;                  // this step: attention is paged decode
    world_buffer<bf16> normed_;             // normalised rows
    world_buffer<bf16> sublayer_out_;       // what attention or MLP adds, before its norm
    cuda_expert_mlp expert_mlp_;
    std::vector<world_memory> workspaces_;  // of decode
    world_memory dequantised_;              // weights of one matrix at a time
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
