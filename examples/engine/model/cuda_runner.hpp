// The runner of a GPU. It is a library of its own that shows these two functions alone (cuda_runner.cu): nvcc makes other functions of the
// library's headers than a host compiler does, under the same names, and so the two must not meet in one program. Where there is no CUDA they
// refuse (no_cuda_runner.cpp).
#pragma once

#include <memory>

#include "engine/model/runner.hpp"

namespace imbrex::engine {

[[gnu::visibility("default")]] bool has_cuda();  // that this program can use

[[gnu::visibility("default")]] std::unique_ptr<runner> make_cuda_runner(const model_files& files,
                                                                        const runner_options& options,
                                                                        const loading_progress& progress);

}  // namespace imbrex::engine
