// The GPU model in the host world, with head_dim 64; compiled once (cuda_matrix.cpp) for all tests that use it.
#pragma once

#include <memory>

#include "engine/model/runner.hpp"

namespace imbrex::engine::test {

std::unique_ptr<runner> make_cuda_kernels_runner_on_host(const model_files& files, const runner_options& options);

}  // namespace imbrex::engine::test
