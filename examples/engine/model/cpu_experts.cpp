#include "engine/model/cpu_experts.hpp"

#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/moe_combine.hpp>
#include <imbrex/kernels/moe_router.hpp>

#include <algorithm>
#include <optional>

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

// The order in which the matrix needs x; nothing if it does not consist of blocks.
std::optional<chunk_order> order_of(const cpu_matrix& matrix) {
    const block_weight_rows* blocks = matrix.blocks();
    if (blocks == nullptr) return {};
    return order_of_chunks(blocks->type);
}

bool have_blocks(const std::vector<cpu_experts::expert>& all) {
    const auto in = order_of(all.front().gate), out = order_of(all.front().down);
    return in && out && std::ranges::all_of(all, [&](const cpu_experts::expert& one) {
               return order_of(one.gate) == in && order_of(one.up) == in && order_of(one.down) == out;
           });
}

quantised_rows quantised_for(const cpu_matrix& matrix, const float* x, int rows) {
    return {x, rows, matrix.blocks()->columns, *order_of(matrix)};
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
    are_blocks = have_blocks(all);
}

cpu_expert_mlp::cpu_expert_mlp(const model_config& config, const runner_options& options, void* stream)
    : where_(options.where),
      stream_(stream),
      config_(config.experts),
      hidden_(config.hidden_size),
      intermediate_(config.intermediate_size) {
    const std::int64_t tokens = options.max_num_batched_tokens, choices = tokens * config_.per_token;
    logits_ = {where_, tokens * config_.count};
    own_x_ = {where_, tokens * hidden_};
    gate_ = {where_, choices * intermediate_};
    up_ = {where_, choices * intermediate_};
    y_ = {where_, choices * hidden_};
    routing_ = {where_, moe_routing::workspace_bytes(sizes_of(config_, options.max_num_batched_tokens))};
}

void cpu_expert_mlp::compute(const cpu_experts& with, const float* x, int tokens, float* out) {
    if (tokens == 0) return;
    with.router.matmul(where_, x, tokens, logits_.data(), with.router_bias.data(), stream_);
    const moe_sizes sizes = sizes_of(config_, tokens);
    const moe_routing routing = moe_routing::in_workspace(routing_.at(), sizes);
    const moe_router_problem<float> problem{as_rows<const float>(logits_.data(), tokens, config_.count), routing};
    if (config_.weights_of_chosen) {
        moe_router<float>::launch(where_, problem, {}, stream_);
    } else {
        moe_router<float, moe_scoring::softmax_of_all>::launch(where_, problem, {}, stream_);
    }
    std::vector<chosen_expert> chosen;
    for (int row = 0; row < sizes.choices(); ++row) {
        const cpu_experts::expert* one = &with.all[static_cast<std::size_t>(routing.expert_of_tile[row])];
        if (chosen.empty() || chosen.back().with != one) chosen.push_back({one, row, 0});
        ++chosen.back().rows;
    }
    if (with.are_blocks) {
        apply_grouped(chosen, x, tokens, routing);
    } else {
        apply_one_by_one(chosen, x, routing);
    }
    moe_combine<float>::launch(where_, {.y = {y_.data()}, .routing = routing, .out = as_rows(out, tokens, hidden_)},
                               stream_);
}

void cpu_expert_mlp::apply_grouped(std::span<const chosen_expert> chosen, const float* x, int tokens,
                                   const moe_routing& routing) {
    std::vector<block_gemm_problem> problems;
    const auto add = [&](const chosen_expert& one, const cpu_matrix& matrix, const world_buffer<float>& bias,
                         const int* numbers, const world_buffer<float>& out) {
        problems.push_back({.weights = *matrix.blocks(),
                            .numbers = numbers,
                            .first = one.first,
                            .rows = one.rows,
                            .bias = bias.data(),
                            .out = out.data() + one.first * matrix.rows(),
                            .out_stride = matrix.rows()});
    };
    for (const chosen_expert& one : chosen) {
        const int* const numbers = routing.token_of_row + one.first;
        add(one, one.with->gate, one.with->gate_bias, numbers, gate_);
        add(one, one.with->up, one.with->up_bias, numbers, up_);
    }
    block_gemm(problems, quantised_for(chosen.front().with->gate, x, tokens));
    const int choices = routing.sizes.choices();
    activate(gate_.data(), up_.data(), choices);
    problems.clear();
    for (const chosen_expert& one : chosen) add(one, one.with->down, one.with->down_bias, nullptr, y_);
    block_gemm(problems, quantised_for(chosen.front().with->down, gate_.data(), choices));
}

void cpu_expert_mlp::apply_one_by_one(std::span<const chosen_expert> chosen, const float* x,
                                      const moe_routing& routing) {
    for (const auto& [with, first, rows] : chosen) {
        for (int i = 0; i < rows; ++i)
            std::copy_n(x + routing.token_of_row[first + i] * hidden_, hidden_, own_x_.data() + i * hidden_);
        with->gate.matmul(where_, own_x_.data(), rows, gate_.data(), with->gate_bias.data(), stream_);
        with->up.matmul(where_, own_x_.data(), rows, up_.data(), with->up_bias.data(), stream_);
        activate(gate_.data(), up_.data(), rows);
        with->down.matmul(where_, gate_.data(), rows, y_.data() + first * hidden_, with->down_bias.data(), stream_);
    }
}

void cpu_expert_mlp::activate(float* gate, const float* up, int rows) {
    // A token's rows are few and long: pieces of them keep all cores busy.
    constexpr std::int64_t piece = 256;
    const std::int64_t all = rows * intermediate_;
    const auto by = [&](const auto& function) {
        hw::thread_pool::shared().for_each(static_cast<int>((all + piece - 1) / piece), 0, [&](int number) {
            const std::int64_t first = number * piece, last = std::min(all, first + piece);
            for (std::int64_t i = first; i < last; ++i) gate[i] = function(gate[i], up[i]);
        });
    };
    if (config_.swiglu_limit > 0)
        return by(activation::clamped_swiglu{.limit = static_cast<float>(config_.swiglu_limit)});
    by(activation::swiglu{});
}

}  // namespace imbrex::engine
