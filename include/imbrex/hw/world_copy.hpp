// Copies within the memory of one world: contiguous bytes, and pitched rows. On the device they are enqueued in the
// stream without waiting, and the two sides may be on different devices.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <cstddef>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace imbrex {

inline namespace IMBREX_WORLDS {

// Source and destination must not overlap.
inline void copy_bytes(world where, void* to, const void* from, std::size_t bytes,
                       [[maybe_unused]] void* stream = nullptr) {
    if (bytes == 0) return;
#if defined(__CUDACC__)
    if (where == world::device) {
        detail::require_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
                                "cudaMemcpyAsync");
        return;
    }
#else
    require(where != world::device, detail::host_world_only);
#endif
    std::memcpy(to, from, bytes);
}

}  // namespace IMBREX_WORLDS

// The address of the first row, and the pitch: the bytes from one row to the next.
struct pitched_ptr {
    void* ptr = nullptr;
    std::size_t pitch = 0;
};
struct const_pitched_ptr {
    const void* ptr = nullptr;
    std::size_t pitch = 0;
};

inline namespace IMBREX_WORLDS {

// Copies `rows` rows of `bytes` bytes each.
inline void copy_2d(world where, const pitched_ptr& to, const const_pitched_ptr& from, std::size_t bytes,
                    std::size_t rows, [[maybe_unused]] void* stream = nullptr) {
    if (bytes == 0 || rows == 0) return;
#if defined(__CUDACC__)
    if (where == world::device) {
        detail::require_success(cudaMemcpy2DAsync(to.ptr, to.pitch, from.ptr, from.pitch, bytes, rows,
                                                  cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
                                "cudaMemcpy2DAsync");
        return;
    }
#else
    require(where != world::device, detail::host_world_only);
#endif
    for (std::size_t row = 0; row < rows; ++row) {
        std::memcpy(static_cast<char*>(to.ptr) + row * to.pitch, static_cast<const char*>(from.ptr) + row * from.pitch,
                    bytes);
    }
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
