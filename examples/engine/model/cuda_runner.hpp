// The runner on a GPU: a shared library of its own that exports only these two functions (cuda_runner.cu). Its symbols stay apart from those
// of the program, in which a host compiler compiles the same sources. Without CUDA, no_cuda_runner.cpp defines both: has_cuda is false and
// make_cuda_runner throws.
#pragma once

#include <memory>

#include "engine/model/runner.hpp"

namespace imbrex::engine {

[[gnu::visibility("default")]] bool has_cuda();  // this program can use CUDA and finds a GPU

[[gnu::visibility("default")]] std::unique_ptr<runner> make_cuda_runner(const model_files& files,
                                                                        const runner_options& options,
                                                                        const loading_progress& progress);

}  // namespace imbrex::engine
