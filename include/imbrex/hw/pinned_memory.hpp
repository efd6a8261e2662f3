// Page-locked host memory for large data that moves to and from a device by asynchronous copies at full speed, such as
// evicted blocks of a KV cache. In the host worlds it is ordinary memory, which the system provides on first use.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace imbrex {

inline namespace IMBREX_WORLDS {

class pinned_memory {
  public:
    pinned_memory() = default;
    // Memory for copies to and from this world.
    pinned_memory(world where, std::size_t bytes) : where_(where), bytes_(bytes) {
        if (bytes == 0) return;
        if (where != world::device) {
            begin_ = std::calloc(1, bytes);
            if (begin_ == nullptr) throw std::bad_alloc();
            return;
        }
#if defined(__CUDACC__)
        detail::require_success(cudaMallocHost(&begin_, bytes), "cudaMallocHost");
#else
        throw error(detail::host_world_only);
#endif
    }
    pinned_memory(pinned_memory&& other) noexcept
        : where_(other.where_), bytes_(std::exchange(other.bytes_, 0)), begin_(std::exchange(other.begin_, nullptr)) {}
    pinned_memory& operator=(pinned_memory&& other) noexcept {
        std::swap(where_, other.where_);
        std::swap(bytes_, other.bytes_);
        std::swap(begin_, other.begin_);
        return *this;
    }
    ~pinned_memory() {
        if (where_ != world::device) {
            std::free(begin_);
            return;
        }
#if defined(__CUDACC__)
        if (begin_ != nullptr) cudaFreeHost(begin_);
#endif
    }

    std::size_t bytes() const {
        return bytes_;
    }
    // The address at a byte offset.
    std::byte* at(std::size_t offset = 0) const {
        return static_cast<std::byte*>(begin_) + offset;
    }

  private:
    world where_ = world::host;
    std::size_t bytes_ = 0;
    void* begin_ = nullptr;
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
