#include "device_runner.hpp"

#include <imbrex/core/error.hpp>

#include "model_runner.hpp"
#include "tile_kernels.hpp"

namespace imbrex::engine {

bool has_device() {
    return device_available();
}

std::unique_ptr<runner> make_device_runner(const model_files& files, const runner_options& options,
                                           const loading_progress& progress) {
    require(device_available(), "device: cuda; there is no GPU that this program could use");
    return std::make_unique<model_runner<tile_kernels<64, 128>>>(files, options, progress);
}

}  // namespace imbrex::engine
