// The runner of a GPU, compiled by nvcc (model/cuda_*.cu). Files of the host compiler call these functions and link the library; both
// compilers include the library's headers, which core/config.hpp keeps apart. Without CUDA, no_cuda_runner.cpp throws.
#pragma once

#include <memory>
#include <string>

#include "engine/model/runner.hpp"

namespace imbrex::engine {

bool has_cuda();  // this program can use CUDA and finds a GPU

// The PCI bus id of the current GPU, such as "00000000:3b:00.0", by which the driver's tools know it; empty without one.
std::string cuda_bus_id();

std::unique_ptr<runner> make_cuda_runner(const model_files& files, const runner_options& options,
                                         const loading_progress& progress);

}  // namespace imbrex::engine
