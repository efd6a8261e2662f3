// A mixture of experts on a GPU, in place of the gated MLP. cpu_experts.hpp is the CPU counterpart.
//
//     x --- router --> logits --- moe_router --> choices, sorted by expert
//       --- gate and up of the chosen experts, SwiGLU --> h --- down --> y, a row for each choice
//     out += sum of weight * y over the choices of a token, in the order of the choices
//
// For a few tokens, the norm before it, the router's product and moe_router are one launch (moe_norm_router).
//
// Nothing returns to the host: a decode step is captured in a CUDA graph. The rows of an expert fill tiles, and the kernel
// follows from their height:
//
//     tile_rows   kernel          measured for
//     8, 16       GEMV            few rows for each expert: it reads the weights at the speed of memory
//     64, 128     grouped GEMM    many
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/moe_combine.hpp>
#include <imbrex/kernels/moe_gemv.hpp>
#include <imbrex/kernels/moe_norm_router.hpp>
#include <imbrex/kernels/moe_router.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/model/cuda_expert_matrix.hpp"
#include "engine/model/cuda_matrix.hpp"
#include "engine/model/norm.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/weight_loader.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// The router, in bf16 whatever the format of the others: its logits decide.
struct cuda_router : cuda_matrix {
    cuda_router() = default;
    cuda_router(const stacked_weights& from, runner_options options) : cuda_matrix(from, in_bf16(options)) {}

  private:
    static runner_options in_bf16(runner_options options) {
        options.weights = weight_format::bf16;
        return options;
    }
};

// Of one layer.
class cuda_experts {
  public:
    cuda_experts() = default;
    // `mlp`: what the names of its weights begin with.
    cuda_experts(weight_loader& loader, const std::string& mlp, const norm_weights& before, const expert_config& config,
                 world where)
        : norm(where, before), router(loader.load<cuda_router>({mlp + "router.weight"})) {
        if (config.bias) router_bias = {where, loader.load_floats({mlp + "router.bias"})};
        gate_up = loader.load<cuda_expert_matrix>(names_of(mlp, config.count, {"gate_proj", "up_proj"}, "weight"));
        down = loader.load<cuda_expert_matrix>(names_of(mlp, config.count, {"down_proj"}, "weight"));
        const auto biases = [&](const std::vector<const char*>& projections, int padded_rows) {
            const std::size_t matrices = projections.size() * static_cast<std::size_t>(config.count);
            std::vector<float> all(matrices * static_cast<std::size_t>(padded_rows));
            if (config.bias) {
                auto to = all.begin();
                for (const std::string& name : names_of(mlp, config.count, projections, "bias")) {
                    std::ranges::copy(loader.load_floats({name}), to);
                    to += padded_rows;
                }
            }
            return world_buffer<float>(where, all);
        };
        gate_up_bias = biases({"gate_proj", "up_proj"}, gate_up.rows());
        down_bias = biases({"down_proj"}, down.rows());
    }

    const float* router_bias_or_null() const { return router_bias.size() == 0 ? nullptr : router_bias.data(); }

    model_norm norm;
    cuda_router router;
    world_buffer<float> router_bias;  // empty: none
    cuda_expert_matrix gate_up, down;
    world_buffer<float> gate_up_bias, down_bias;  // padded as the matrices are; zeros: none

  private:
    static std::vector<std::string> names_of(const std::string& mlp, int experts,
                                             const std::vector<const char*>& projections, const std::string& end) {
        std::vector<std::string> names;
        for (int expert = 0; expert < experts; ++expert) {
            for (const char* projection : projections)
                names.push_back(mlp + "experts." + std::to_string(expert) + "." + projection + "." + end);
        }
        return names;
    }
};

// Computes mixtures, and has the buffers for it.
class cuda_expert_mlp {
  public:
    cuda_expert_mlp() = default;
    cuda_expert_mlp(const model_config& config, const runner_options& options, std::int64_t most_tokens, void* stream)
        : where_(options.where),
          stream_(stream),
          config_(config.experts),
          hidden_(config.hidden_size),
          logits_(where_, most_tokens * config_.count) {
        require(hidden_ % 8 == 0, "hidden_size: ", hidden_, "; on a GPU, a model with experts has a multiple of 8");
        if (config_.swiglu_limit > 0) {
            function_ = {.limit = static_cast<float>(config_.swiglu_limit)};
        } else {
            function_ = {.limit = std::numeric_limits<float>::infinity(), .alpha = 1, .up_offset = 0};
        }
        std::int64_t rows = 0;
        std::size_t bytes = 0;
        for (const int tile_rows : {few_rows, some_rows, many_rows, most_rows}) {
            const moe_sizes sizes = sizes_of(static_cast<int>(most_tokens), tile_rows);
            rows = std::max<std::int64_t>(rows, sizes.max_rows());
            bytes = std::max(bytes, moe_routing::workspace_bytes(sizes));
        }
        h_ = {where_, rows * padded(config.intermediate_size)};
        y_ = {where_, rows * padded(hidden_)};
        routing_ = {where_, bytes};
    }

    // One block computes them all, one after the other.
    static constexpr int most_fused_tokens = 4;
    // Rows of an expert, in the mean.
    static constexpr int most_gemv_rows = 12;

    // Rows of a tile. The first and the last are right for any number of tokens; the bits of a token do not depend on it.
    static constexpr int few_rows = 8, some_rows = 16, many_rows = 64, most_rows = 128;
    // The fastest for this many tokens.
    int tile_rows_of(int tokens) const {
        const int rows_of_expert = ceil_div(tokens * config_.per_token, config_.count);
        if (rows_of_expert <= most_gemv_rows) return moe_gemv_tile_rows(tokens, config_.count, config_.per_token);
        return rows_of_expert <= 64 ? many_rows : most_rows;
    }

    // For the product of x and the router.
    float* logits() const { return logits_.data(); }

    moe_routing routing_of(int tokens, int tile_rows) const {
        return moe_routing::in_workspace(routing_.at(), sizes_of(tokens, tile_rows));
    }

    // By the logits.
    void choose(const moe_routing& routing) const {
        const moe_router_problem<float> problem{
            as_rows<const float>(logits_.data(), routing.sizes.tokens, config_.count), routing};
        with_scoring([&]<class Scoring>(Scoring) { moe_router<float, Scoring>::launch(where_, problem, {}, stream_); });
    }

    // Whether norm_and_choose can take these tokens, and is faster.
    bool can_fuse(const cuda_experts& with, int tokens) const {
        return with.norm.is_rms() && tokens <= most_fused_tokens &&
               moe_norm_router<bf16>::can_implement(tokens, hidden_, config_.count);
    }
    // normed = norm(hidden); its product with the router, and the choice.
    void norm_and_choose(const cuda_experts& with, const bf16* hidden, bf16* normed, const moe_routing& routing) const {
        const int tokens = routing.sizes.tokens;
        const moe_norm_router_problem<bf16> problem{.x = as_rows(hidden, tokens, hidden_),
                                                    .norm_weight = with.norm.weight(),
                                                    .epsilon = with.norm.epsilon(),
                                                    .out = as_rows(normed, tokens, hidden_),
                                                    .router = {with.router.values()},
                                                    .bias = with.router_bias_or_null(),
                                                    .logits = logits_.data(),
                                                    .routing = routing};
        with_scoring(
            [&]<class Scoring>(Scoring) { moe_norm_router<bf16, Scoring>::launch(where_, problem, {}, stream_); });
    }

    // out += the mixture of x, [tokens, hidden], by the routing.
    void add(const cuda_experts& with, const bf16* x, const moe_routing& routing, bf16* out) const {
        const int tokens = routing.sizes.tokens;
        const int ffn = with.gate_up.rows(), columns = with.down.rows();
        with.gate_up.gate_up(where_, {routing, x, hidden_, h_.data()},
                             {{with.gate_up_bias.data(), 2 * ffn, 2 * ffn}, function_}, stream_);
        with.down.down(where_, {routing, h_.data(), ffn, y_.data()}, {{with.down_bias.data(), columns, columns}},
                       stream_);
        moe_combine<bf16>::launch(where_,
                                  {.y = {y_.data(), columns},
                                   .routing = routing,
                                   .residual = as_rows<const bf16>(out, tokens, hidden_),
                                   .out = as_rows(out, tokens, hidden_)},
                                  stream_);
    }

  private:
    static std::int64_t padded(int rows) { return std::int64_t{ceil_div(rows, packed_rows)} * packed_rows; }

    moe_sizes sizes_of(int tokens, int tile_rows) const {
        return {.tokens = tokens, .experts = config_.count, .top_k = config_.per_token, .tile_rows = tile_rows};
    }

    template <class Call>
    void with_scoring(const Call& call) const {
        config_.weights_of_chosen ? call(moe_scoring::softmax_of_chosen{}) : call(moe_scoring::softmax_of_all{});
    }

    world where_ = world::host;
    void* stream_ = nullptr;
    expert_config config_;
    int hidden_ = 0;
    activation::clamped_swiglu function_;
    world_buffer<float> logits_;
    world_buffer<bf16> h_, y_;
    world_memory routing_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
