#include <imbrex/core/error.hpp>

#include "engine/model/cuda_runner.hpp"

namespace imbrex::engine {

bool has_cuda() {
    return false;
}

std::string cuda_bus_id() {
    return {};
}

std::unique_ptr<runner> make_cuda_runner(const model_files&, const runner_options&, const loading_progress&) {
    throw error("device: cuda; this program was compiled without CUDA and runs on the CPU alone");
}

}  // namespace imbrex::engine
