#include "engine/model/cpu_experts.hpp"

#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/moe_combine.hpp>
#include <imbrex/kernels/moe_router.hpp>

#include <algorithm>

#include "engine/model/row_update.hpp"

namespace imbrex::engine {

namespace {

// A tile for each row: the rows of an expert follow those of the one before, without padding.
moe_sizes sizes_of(const expert_config& config, int tokens) {
    return {.tokens = tokens, .experts = config.count, .top_k = config.per_token, .tile_rows = 1};
}

runner_options in_f32(runner_options options) {
    options.weights = weight_format::f32;
    return options;
}

}  // namespace

cpu_router::cpu_router(const stacked_weights& from, runner_options options) : cpu_matrix(from, in_f32(options)) {}

cpu_experts::cpu_experts(weight_loader& loader, const std::string& mlp, const norm_weights& before,
                         const expert_config& config, world where)
    : norm(where, before), router(loader.load<cpu_router>({mlp + "router.weight"})) {
    const auto bias_of = [&](const std::string& name) {
        return config.bias ? world_buffer<float>(where, loader.load_floats({name + ".bias"})) : world_buffer<float>();
    };
    router_bias = bias_of(mlp + "router");
    for (int number = 0; number < config.count; ++number) {
        const std::string of = mlp + "experts." + std::to_string(number) + ".";
        const auto load = [&](const char* name) { return loader.load<cpu_matrix>({of + name + ".weight"}); };
        all.push_back({load("gate_proj"), load("up_proj"), load("down_proj"), bias_of(of + "gate_proj"),
                       bias_of(of + "up_proj"), bias_of(of + "down_proj")});
    }
}

cpu_expert_mlp::cpu_expert_mlp(const model_config& config, const runner_options& options, void* stream)
    : where_(options.where),
      stream_(stream),
      config_(config.experts),
      hidden_(config.hidden_size),
      intermediate_(config.intermediate_size) {
    const std::int64_t tokens = options.max_num_batched_tokens;
    logits_ = {where_, tokens * config_.count};
    own_x_ = {where_, tokens * hidden_};
    gate_ = {where_, tokens * intermediate_};
    up_ = {where_, tokens * intermediate_};
    y_ = {where_, tokens * config_.per_token * hidden_};
    routing_ = {where_, moe_routing::workspace_bytes(sizes_of(config_, options.max_num_batched_tokens))};
}

void cpu_expert_mlp::compute(const cpu_experts& with, const float* x, int tokens, float* out) {
    with.router.matmul(where_, x, tokens, logits_.data(), with.router_bias.data(), stream_);
    const moe_sizes sizes = sizes_of(config_, tokens);
    const moe_routing routing = moe_routing::in_workspace(routing_.at(), sizes);
    const moe_router_problem<float> problem{as_rows<const float>(logits_.data(), tokens, config_.count), routing};
    if (config_.weights_of_chosen) {
        moe_router<float>::launch(where_, problem, {}, stream_);
    } else {
        moe_router<float, moe_scoring::softmax_of_all>::launch(where_, problem, {}, stream_);
    }
    const int* const experts = routing.expert_of_tile;
    for (int first = 0; first < sizes.choices();) {
        const auto last = static_cast<int>(std::find_if(experts + first, experts + sizes.choices(),
                                                        [&](int other) { return other != experts[first]; }) -
                                           experts);
        apply(with.all[static_cast<std::size_t>(experts[first])], x, routing.token_of_row + first, last - first,
              y_.data() + first * hidden_);
        first = last;
    }
    moe_combine<float>::launch(where_, {.y = {y_.data()}, .routing = routing, .out = as_rows(out, tokens, hidden_)},
                               stream_);
}

void cpu_expert_mlp::apply(const cpu_experts::expert& with, const float* x, const int* row_of_x, int rows, float* y) {
    for (int i = 0; i < rows; ++i) std::copy_n(x + row_of_x[i] * hidden_, hidden_, own_x_.data() + i * hidden_);
    with.gate.matmul(where_, own_x_.data(), rows, gate_.data(), with.gate_bias.data(), stream_);
    with.up.matmul(where_, own_x_.data(), rows, up_.data(), with.up_bias.data(), stream_);
    const auto activate = [&](const auto& function) {
        update_rows<float>(where_, gate_.data(), up_.data(), rows, intermediate_, function, stream_);
    };
    if (config_.swiglu_limit > 0) {
        activate(activation::clamped_swiglu{.limit = static_cast<float>(config_.swiglu_limit)});
    } else {
        activate(activation::swiglu{});
    }
    with.down.matmul(where_, gate_.data(), rows, y, with.down_bias.data(), stream_);
}

}  // namespace imbrex::engine
