// Shared by the engine tests on a GPU. Without a GPU they print a message and pass.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>

#include "engine/model/cuda_runner.hpp"
#include "engine/model/runner_logits.hpp"

namespace imbrex::engine::test {

// Tolerance of logits by distance(), with weights, KV cache and activations in bf16. With the same kernels in the host
// world the largest error of these models is 0.06.
inline constexpr double cuda_rounding = 0.08;

inline bool cuda_is_available() {
    if (has_cuda()) return true;
    MESSAGE("skipped: there is no GPU that the engine could use");
    return false;
}

inline constexpr runner_options small_runner{.num_kv_blocks = 24, .max_num_batched_tokens = 128, .max_num_seqs = 8};

inline std::unique_ptr<runner> runner_on_cuda(const model_files& files, runner_options options = small_runner) {
    options.where = world::device;
    return make_runner(files, options);
}

// How far the logit of a chosen token may be below the best one: both are rounded.
inline double margin_of_rounding(const row& expected) {
    double squares = 0;
    for (const double value : expected) squares += value * value;
    return 2 * cuda_rounding * std::sqrt(squares / static_cast<double>(expected.size()));
}

inline bool could_be_best(const row& expected, int token, double margin) {
    const double best = expected[static_cast<std::size_t>(best_token(expected))];
    return expected[static_cast<std::size_t>(token)] >= best - margin;
}

}  // namespace imbrex::engine::test
