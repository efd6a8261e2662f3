// Memory of one world without a host copy, unlike world_array: for large data that stays there, such as a KV cache. It
// is initialised to zero and aligned to 256 bytes.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/hw/world_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace imbrex {

inline namespace IMBREX_WORLDS {

class world_memory {
  public:
    static constexpr std::size_t alignment = 256;

    world_memory() = default;
    // Waits until the memory is zero, so that all streams see it.
    world_memory(world where, std::size_t bytes) : where_(where), bytes_(bytes) {
        const std::size_t at_least_some = bytes == 0 ? alignment : bytes;
        if (where != world::device) {
            // Zeroed by the system on first use, so that a large cache takes as much memory as is used of it.
            allocation_ = std::calloc(1, at_least_some + alignment);
            if (allocation_ == nullptr) throw std::bad_alloc();
            const auto address = reinterpret_cast<std::uintptr_t>(allocation_);
            begin_ = static_cast<char*>(allocation_) + (alignment - address % alignment) % alignment;
            return;
        }
#if defined(__CUDACC__)
        detail::require_success(cudaMalloc(&begin_, at_least_some), "cudaMalloc");
        detail::require_success(cudaMemset(begin_, 0, at_least_some), "cudaMemset");
        detail::require_success(cudaStreamSynchronize(nullptr), "cudaMemset");
#else
        throw error(detail::host_world_only);
#endif
    }
    world_memory(world_memory&& other) noexcept
        : where_(other.where_),
          bytes_(other.bytes_),
          begin_(std::exchange(other.begin_, nullptr)),
          allocation_(std::exchange(other.allocation_, nullptr)) {}
    world_memory& operator=(world_memory&& other) noexcept {
        std::swap(where_, other.where_);
        std::swap(bytes_, other.bytes_);
        std::swap(begin_, other.begin_);
        std::swap(allocation_, other.allocation_);
        return *this;
    }
    ~world_memory() {
        if (where_ != world::device) {
            std::free(allocation_);
            return;
        }
#if defined(__CUDACC__)
        if (begin_ != nullptr) cudaFree(begin_);
#endif
    }

    std::size_t bytes() const {
        return bytes_;
    }

    // The address at a byte offset.
    template <class T = void>
    T* at(std::size_t offset = 0) const {
        return reinterpret_cast<T*>(static_cast<char*>(begin_) + offset);
    }

    // Copies from the host, and back, in stream order. Both wait until the copy is done.
    void write(std::size_t offset, const void* from, std::size_t bytes, void* stream = nullptr) {
        copy(at(offset), from, bytes, stream);
    }
    void read(std::size_t offset, void* to, std::size_t bytes, void* stream = nullptr) const {
        copy(to, at(offset), bytes, stream);
    }
    // Copies between two ranges of it that do not overlap, in stream order, without waiting.
    void copy_within(std::size_t to, std::size_t from, std::size_t bytes, void* stream = nullptr) const {
        copy_bytes(where_, at(to), at(from), bytes, stream);
    }

  private:
    void copy(void* to, const void* from, std::size_t bytes, [[maybe_unused]] void* stream) const {
        if (bytes == 0) return;
#if defined(__CUDACC__)
        if (where_ == world::device) {
            const auto there = static_cast<cudaStream_t>(stream);
            detail::require_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, there), "cudaMemcpyAsync");
            detail::require_success(cudaStreamSynchronize(there), "cudaMemcpyAsync");
            return;
        }
#endif
        std::memcpy(to, from, bytes);
    }

    world where_ = world::host;
    std::size_t bytes_ = 0;
    void* begin_ = nullptr;
    void* allocation_ = nullptr;  // on a host: what std::calloc returned
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
