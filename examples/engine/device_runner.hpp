// The runner of a GPU. It is a library of its own that shows these two functions alone (device_runner.cu): nvcc makes other functions of the
// library's headers than a host compiler does, under the same names, and so the two must not meet in one program. Where there is no CUDA they
// refuse (no_device_runner.cpp).
#pragma once

#include <memory>

#include "runner.hpp"

namespace imbrex::engine {

[[gnu::visibility("default")]] bool has_device();  // that this program can use

[[gnu::visibility("default")]] std::unique_ptr<runner> make_device_runner(const model_files& files,
                                                                          const runner_options& options,
                                                                          const loading_progress& progress);

}  // namespace imbrex::engine
