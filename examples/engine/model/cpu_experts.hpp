// A mixture of experts on a CPU, in place of the gated MLP:
//
//     x --- router --> logits --- moe_router --> choices, sorted by expert
//     for each chosen expert
//         its rows of x --- gate, up --- SwiGLU --- down --> its rows of y
//     out = sum of weight * y over the choices of a token, in the order of the choices
//
// Weights in blocks take a grouped GEMM for the gates and ups of all experts and one for the downs, so that all cores
// work on a single token's few experts; x is quantised once. Other weights take a GEMM per matrix.
//
// The bits of a product do not depend on the number of rows (cpu_matrix.hpp), so those of a token do not depend on the
// batch.
#pragma once

#include <imbrex/kernels/moe_router/routing.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/model/cpu_matrix.hpp"
#include "engine/model/norm.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/weight_loader.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {

// The router, in f32 whatever the format of the others: its logits decide.
struct cpu_router : cpu_matrix {
    cpu_router() = default;
    cpu_router(const stacked_weights& from, runner_options options);
};

// Of one layer. Buffers without values: no bias.
struct cpu_experts {
    struct expert {
        cpu_matrix gate, up, down;
        world_buffer<float> gate_bias, up_bias, down_bias;
    };

    cpu_experts() = default;
    // `mlp`: what the names of its weights begin with.
    cpu_experts(weight_loader& loader, const std::string& mlp, const norm_weights& before, const expert_config& config,
                world where);

    model_norm norm;
    cpu_router router;
    world_buffer<float> router_bias;
    std::vector<expert> all;
    bool are_blocks = false;  // all matrices, with one order for the input of gate and up, and one for that of down
};

// Computes mixtures, and has the buffers for it.
class cpu_expert_mlp {
  public:
    cpu_expert_mlp() = default;
    cpu_expert_mlp(const model_config& config, const runner_options& options, void* stream);

    // out = the mixture for `tokens` rows of x, after its norm.
    void compute(const cpu_experts& with, const float* x, int tokens, float* out);

  private:
    // The choices of an expert: consecutive rows.
    struct chosen_expert {
        const cpu_experts::expert* with;
        int first, rows;
    };
    void apply_grouped(std::span<const chosen_expert> chosen, const float* x, int tokens, const moe_routing& routing);
    void apply_one_by_one(std::span<const chosen_expert> chosen, const float* x, const moe_routing& routing);
    void activate(float* gate, const float* up, int rows);

    world where_ = world::host;
    void* stream_ = nullptr;
    expert_config config_;
    std::int64_t hidden_ = 0, intermediate_ = 0;
    world_buffer<float> logits_, own_x_, gate_, up_, y_;  // of the rows of all choices, but for the logits
    world_memory routing_;
};

}  // namespace imbrex::engine
