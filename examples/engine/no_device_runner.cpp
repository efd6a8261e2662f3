#include <imbrex/core/error.hpp>

#include "device_runner.hpp"

namespace imbrex::engine {

bool has_device() {
    return false;
}

std::unique_ptr<runner> make_device_runner(const model_files&, const runner_options&, const loading_progress&) {
    throw error("device: cuda; this program was compiled without CUDA and runs on the CPU alone");
}

}  // namespace imbrex::engine
