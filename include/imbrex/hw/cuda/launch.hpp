// Launches a kernel on the device. Compiled by nvcc only, in both passes: the host pass generates the launch, the
// device pass the kernel's code.
//
// A kernel is a type with `warps`, `arguments`, optionally `shared_memory`, `cluster` (blocks per thread block cluster,
// along x), `min_blocks_per_sm`, `cooperative` and `sized_to_fit`, and run(block, arguments, shared memory), which the
// host world runs too.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/hw/kernel_traits.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/scope.hpp>
#endif

namespace imbrex::device {

// Zero for a kernel without shared memory.
template <class Kernel>
inline constexpr int shared_bytes = std::is_empty_v<hw::shared_memory_of<Kernel>>
                                        ? 0
                                        : static_cast<int>(sizeof(hw::shared_memory_of<Kernel>));

// The second launch bound, one block per SM by default, lets setmaxnreg take effect. It does not prevent two blocks per
// SM for a kernel with few registers.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::warps * 32, hw::min_blocks_per_sm_of<Kernel>)
    entry(const __grid_constant__ typename Kernel::arguments arguments) {
#if IMBREX_DEVICE_WORLD
    extern __shared__ __align__(1024) unsigned char imbrex_shared_memory[];
#if !defined(NDEBUG)
    // The swizzle uses address bits. The base is a multiple of 1024 as long as a kernel has no static shared memory.
    if (hw::shared_address(imbrex_shared_memory) % 1024 != 0) __trap();
#endif
    if constexpr (hw::compiled_for(hw::architecture_of<Kernel>)) {
        block_scope<Kernel::warps, hw::cluster_of<Kernel>> block;
        Kernel::run(block, arguments, *reinterpret_cast<hw::shared_memory_of<Kernel>*>(imbrex_shared_memory));
    } else {
        __trap();
    }
#endif
}

#if IMBREX_DEVICE_WORLD

// Instantiates the kernel in the device pass.
template <class Kernel>
void launch(grid_dim, const typename Kernel::arguments&, cudaStream_t = nullptr) {
    [[maybe_unused]] const auto made = &entry<Kernel>;
}

template <class Kernel>
bool can_run() {
    return false;
}

#else

// Throws, and clears the runtime's error, so that an unrelated call does not report it again.
inline void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();
    throw cuda_error(str_cat("imbrex: ", what, ": ", cudaGetErrorString(status)));
}

// Whether this program has code of the kernel for the current device.
template <class Kernel>
bool can_run() {
    cudaFuncAttributes found = {};
    if (cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(entry<Kernel>)) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return code_meets(hw::architecture_of<Kernel>, found.binaryVersion, found.ptxVersion);
}

// Raises a kernel's shared memory limit on its first launch on a device. nvcc gives each translation unit its own
// kernel, while this function and its static data are shared: so it compares the kernel's address.
template <class Kernel>
void prepare(const void* kernel) {
    constexpr int bytes = shared_bytes<Kernel>;
    constexpr int remembered = 16;
    int device = 0;
    check(cudaGetDevice(&device), "no current device");
    static const void* prepared[remembered] = {};  // per device
    if (device < remembered && __atomic_load_n(&prepared[device], __ATOMIC_RELAXED) == kernel) return;

    int limit = 0;
    check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cannot query the device's shared memory");
    require(bytes <= limit, "imbrex: the kernel needs ", bytes,
            " bytes of shared memory per block; the device allows at most ", limit);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cannot prepare the kernel (was it compiled for this device's architecture?)");
    if constexpr (hw::min_blocks_per_sm_of<Kernel> != 1) {
        // Otherwise the driver may reserve more memory for L1 than several blocks can spare.
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared),
              "cannot prepare the kernel's shared memory");
    }
    if (device < remembered) __atomic_store_n(&prepared[device], kernel, __ATOMIC_RELAXED);
}

// Whether the current device supports programmatic dependent launch.
inline bool device_has_pdl() {
    int device = 0, major = 0;
    check(cudaGetDevice(&device), "no current device");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
          "cannot query the device's architecture");
    return major >= 9;
}

// Throws if the blocks of the grid cannot all be resident at once.
inline void require_fit(const cudaLaunchConfig_t& configuration, const void* kernel, int cluster) {
    const std::int64_t blocks =
        std::int64_t{configuration.gridDim.x} * configuration.gridDim.y * configuration.gridDim.z;
    int fit = 0;
    if (cluster > 1) {
        check(cudaOccupancyMaxActiveClusters(&fit, kernel, &configuration), "cannot query the occupancy");
        fit *= cluster;
    } else {
        int device = 0, sms = 0, per_sm = 0;
        check(cudaGetDevice(&device), "no current device");
        check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "cannot query the number of SMs");
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, static_cast<int>(configuration.blockDim.x),
                                                            configuration.dynamicSmemBytes),
              "cannot query the occupancy");
        fit = sms * per_sm;
    }
    require(blocks <= fit, "imbrex: a grid of ", blocks, " blocks of a kernel that is sized to fit; ", fit,
            " fit the device");
}

// Enqueues the kernel in the stream and returns.
template <class Kernel>
void launch(grid_dim grid, const typename Kernel::arguments& arguments, cudaStream_t stream = nullptr) {
    constexpr int cluster = hw::cluster_of<Kernel>;
    static_assert(alignof(hw::shared_memory_of<Kernel>) <= 1024, "imbrex: shared memory is aligned to 1024 bytes");
    static_assert(cluster >= 1 && cluster <= 8, "imbrex: a cluster has 1 to 8 blocks");
    require(grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= 65535 && grid.z <= 65535, "imbrex: a grid of ", grid.x,
            " x ", grid.y, " x ", grid.z, " blocks: each must be positive, and the second and third at most 65535");
    require(grid.x % cluster == 0, "imbrex: a grid of ", grid.x, " blocks along x, which is not a multiple of the ",
            cluster, " blocks of a cluster");
    const void* const kernel = reinterpret_cast<const void*>(entry<Kernel>);
    prepare<Kernel>(kernel);

    cudaLaunchConfig_t configuration = {};
    configuration.gridDim =
        dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
    configuration.blockDim = dim3(static_cast<unsigned>(Kernel::warps * 32));
    configuration.dynamicSmemBytes = shared_bytes<Kernel>;
    configuration.stream = stream;
    cudaLaunchAttribute attributes[3] = {};
    configuration.attrs = attributes;
    if constexpr (cluster > 1) {
        cudaLaunchAttribute& attribute = attributes[configuration.numAttrs++];
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = cluster;
        attribute.val.clusterDim.y = 1;
        attribute.val.clusterDim.z = 1;
    }
    if (hw::uses_pdl<Kernel> && device_has_pdl()) {
        cudaLaunchAttribute& attribute = attributes[configuration.numAttrs++];
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    if constexpr (hw::is_cooperative<Kernel>) {
        cudaLaunchAttribute& attribute = attributes[configuration.numAttrs++];
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = 1;
    }
    if constexpr (hw::is_sized_to_fit<Kernel>) require_fit(configuration, kernel, cluster);
    void* parameters[] = {const_cast<typename Kernel::arguments*>(&arguments)};
    check(cudaLaunchKernelExC(&configuration, kernel, parameters), "the kernel did not start");
}

#endif

}  // namespace imbrex::device
