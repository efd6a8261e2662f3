// The runner of programs that nvcc compiles (device_runner.cu); others refuse to make one (no_device_runner.cpp).
#pragma once

#include <memory>

#include "runner.hpp"

namespace imbrex::engine {

bool has_device();  // that this program can use

std::unique_ptr<runner> make_device_runner(const model_files& files, const runner_options& options,
                                           const loading_progress& progress);

}  // namespace imbrex::engine
