// A buffer in the memory of a world with a pinned staging buffer on the host, for small data that is exchanged in every
// step. `upload` and `download` only enqueue an asynchronous copy, unlike those of world_memory; wait for the stream before
// reading the host buffer or writing it again. With several host buffers, steps that take them in turn need not wait for
// each other. In the host worlds all are the same memory and nothing is copied.
//
//     pinned_staging ids(where, 4 * count);
//     std::copy(..., ids.host_pointer<int>());
//     ids.upload(4 * count, stream.get());
//     some_kernel::launch(where, {.ids = ids.at<int>()}, stream.get());
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/hw/world_memory.hpp>

#include <cstddef>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace imbrex {

inline namespace IMBREX_WORLDS {

class pinned_staging {
  public:
    pinned_staging() = default;
    pinned_staging(world where, std::size_t bytes, [[maybe_unused]] int host_buffers = 1) : there_(where, bytes) {
        if (where != world::device) return;
#if defined(__CUDACC__)
        const std::size_t all = static_cast<std::size_t>(host_buffers) * bytes;
        detail::require_success(cudaMallocHost(&host_, all == 0 ? world_memory::alignment : all), "cudaMallocHost");
#endif
    }
    pinned_staging(pinned_staging&& other) noexcept
        : there_(std::move(other.there_)), host_(std::exchange(other.host_, nullptr)) {}
    pinned_staging& operator=(pinned_staging&& other) noexcept {
        std::swap(there_, other.there_);
        std::swap(host_, other.host_);
        return *this;
    }
    ~pinned_staging() {
#if defined(__CUDACC__)
        if (host_ != nullptr) cudaFreeHost(host_);
#endif
    }

    std::size_t bytes() const {
        return there_.bytes();
    }

    // The address in the world, and on the host.
    template <class T = void>
    T* at(std::size_t offset = 0) const {
        return there_.template at<T>(offset);
    }
    template <class T = void>
    T* host_pointer(std::size_t offset = 0, int host_buffer = 0) const {
        if (host_ == nullptr) return at<T>(offset);
        return reinterpret_cast<T*>(static_cast<char*>(host_) + static_cast<std::size_t>(host_buffer) * bytes() +
                                    offset);
    }

    // Copies the first `bytes`, in stream order.
    void upload(std::size_t bytes, void* stream = nullptr, int host_buffer = 0) const {
        copy(at(), host_pointer(0, host_buffer), bytes, stream);
    }
    void download(std::size_t bytes, void* stream = nullptr, int host_buffer = 0) const {
        copy(host_pointer(0, host_buffer), at(), bytes, stream);
    }

  private:
    void copy([[maybe_unused]] void* to, [[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes,
              [[maybe_unused]] void* stream) const {
#if defined(__CUDACC__)
        if (host_ == nullptr || bytes == 0) return;
        detail::require_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
                                "cudaMemcpyAsync");
#endif
    }

    world_memory there_;
    void* host_ = nullptr;  // null if it is the same memory
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
