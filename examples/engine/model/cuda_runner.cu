#include "engine/model/cuda_runner.hpp"

#include <imbrex/core/error.hpp>

#include "engine/model/cuda_kernels.hpp"
#include "engine/model/model_runner.hpp"

namespace imbrex::engine {

bool has_cuda() {
    return device_available();
}

std::string cuda_bus_id() {
    int device = 0;
    char id[32] = {};
    const bool known = device_available() && cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetPCIBusId(id, sizeof id, device) == cudaSuccess;
    return known ? id : "";
}

std::unique_ptr<runner> make_cuda_runner(const model_files& files, const runner_options& options,
                                         const loading_progress& progress) {
    require(device_available(), "device: cuda; there is no GPU that this program could use");
    return std::make_unique<model_runner<cuda_kernels<64, 96, 128, 256>>>(files, options, progress);
}

}  // namespace imbrex::engine
