// Worlds: where a kernel runs. `world::device` is the GPU, `world::host` the CPU, and `world::host_checked` the CPU
// with the checker. This header has an array in the memory of a world and one launch for all of them. Programs compiled
// by nvcc have the device; other compilers have the host worlds only.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/hw/host/launch.hpp>
#include <imbrex/hw/host/thread_pool.hpp>

#include <cstddef>
#include <string>
#include <vector>

#if defined(__CUDACC__)
#include <imbrex/hw/cuda/launch.hpp>

#include <cuda_runtime_api.h>
#endif

namespace imbrex {

enum class world { host, host_checked, device };

inline std::string name_of(world one) {
    return one == world::host ? "host" : one == world::host_checked ? "host, checked" : "device";
}

inline namespace IMBREX_WORLDS {

// Whether the program is compiled for the device and one is present.
inline bool device_available() {
#if defined(__CUDACC__)
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
#else
    return false;
#endif
}

}  // namespace IMBREX_WORLDS

namespace detail {
// The error message if a program that is compiled without nvcc uses the device.
inline constexpr const char* host_world_only =
    "world: device; this program was not compiled by nvcc and has only the host world";

#if defined(__CUDACC__)
inline void require_success(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw cuda_error(str_cat(what, ": ", cudaGetErrorString(status)));
}
#endif
}  // namespace detail

inline namespace IMBREX_WORLDS {

// An array in the memory of one world, with a copy on the host.
template <class T>
class world_array {
  public:
    world_array(world where, std::size_t count, const T& value = T{}) : values(count, value), where_(where) {
        if (where_ != world::device) return;
#if defined(__CUDACC__)
        // 16 bytes more, so that an empty array also has an address.
        detail::require_success(cudaMalloc(reinterpret_cast<void**>(&on_device_), bytes() + 16), "cudaMalloc");
#else
        throw error(detail::host_world_only);
#endif
    }
    world_array(const world_array&) = delete;
    world_array& operator=(const world_array&) = delete;
    ~world_array() {
#if defined(__CUDACC__)
        if (on_device_ != nullptr) cudaFree(on_device_);
#endif
    }

    std::vector<T> values;

    // Copies `values` to the world and returns their address there.
    T* upload() {
#if defined(__CUDACC__)
        if (where_ == world::device) {
            detail::require_success(cudaMemcpy(on_device_, values.data(), bytes(), cudaMemcpyHostToDevice),
                                    "copy to the device");
            return on_device_;
        }
#endif
        return values.data();
    }
    // Copies the array back into `values`, after earlier launches have finished.
    void download() {
#if defined(__CUDACC__)
        if (where_ == world::device) {
            detail::require_success(cudaMemcpy(values.data(), on_device_, bytes(), cudaMemcpyDeviceToHost),
                                    "copy from the device");
        }
#endif
    }

  private:
    std::size_t bytes() const {
        return values.size() * sizeof(T);
    }

    world where_;
    T* on_device_ = nullptr;
};

// The number of blocks that run concurrently at one per SM: the SMs of the current device, or the cores of the host. In
// the checked host world it is two, so that a seed replays the same schedule of a launcher on every machine.
inline int num_sms(world where) {
    if (where == world::host_checked) return 2;
    if (where != world::device) return hw::thread_pool::shared().threads();
#if defined(__CUDACC__)
    int device = 0, num_sms = 0;
    detail::require_success(cudaGetDevice(&device), "no current device");
    detail::require_success(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device),
                            "cannot query the number of SMs");
    return num_sms;
#else
    throw error(detail::host_world_only);
#endif
}

// Whether the program has code of the kernel for that world. The host worlds run every kernel.
template <class Kernel>
bool can_run(world where) {
    if (where != world::device) return true;
#if defined(__CUDACC__)
    return device::can_run<Kernel>();
#else
    throw error(detail::host_world_only);
#endif
}

// Launches a kernel that is written for one world, as when device and host use different tile sizes. It is not compiled
// for the other.
template <class Kernel>
void launch_on_device([[maybe_unused]] grid_dim grid, [[maybe_unused]] const typename Kernel::arguments& arguments,
                      [[maybe_unused]] void* stream) {
#if defined(__CUDACC__)
    device::launch<Kernel>(grid, arguments, static_cast<cudaStream_t>(stream));
#else
    throw error(detail::host_world_only);
#endif
}
template <class Kernel>
void launch_on_host(world where, [[maybe_unused]] grid_dim grid,
                    [[maybe_unused]] const typename Kernel::arguments& arguments) {
#if defined(IMBREX_DEVICE_ALONE)
    throw error(str_cat("world: ", name_of(where),
                        "; this program was compiled with IMBREX_DEVICE_ALONE and has only the device"));
#else
    host_options options;
    options.mode = where == world::host ? host_mode::plain : host_mode::checked;
    host::launch<Kernel>(grid, arguments, options);
#endif
}

// Launches the kernel. On the device the launch is enqueued in the stream (a cudaStream_t) and the call returns at
// once.
template <class Kernel>
void launch(world where, grid_dim grid, const typename Kernel::arguments& arguments, void* stream = nullptr) {
    if (where == world::device) {
        launch_on_device<Kernel>(grid, arguments, stream);
    } else {
        launch_on_host<Kernel>(where, grid, arguments);
    }
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
