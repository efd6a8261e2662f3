// Memory of one world with a mirror of it on the host, for what is small and goes there and back in every step: sending and
// fetching only put a copy into the stream, and the host does not wait for it, as it does with world_memory. Whoever fills the
// mirror again, or reads it, waits for the stream first. In the host worlds the two are the same memory, and nothing is copied.
//
//     world_mirror ids(where, 4 * count);
//     std::copy(..., ids.mirror<int>());
//     ids.send(4 * count, stream.get());
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

class world_mirror {
  public:
    world_mirror() = default;
    world_mirror(world where, std::size_t bytes) : there_(where, bytes) {
        if (where != world::device) return;
#if defined(__CUDACC__)
        detail::require_success(cudaMallocHost(&mirror_, bytes == 0 ? world_memory::alignment : bytes),
                                "cudaMallocHost");
#endif
    }
    world_mirror(world_mirror&& other) noexcept
        : there_(std::move(other.there_)), mirror_(std::exchange(other.mirror_, nullptr)) {}
    world_mirror& operator=(world_mirror&& other) noexcept {
        std::swap(there_, other.there_);
        std::swap(mirror_, other.mirror_);
        return *this;
    }
    ~world_mirror() {
#if defined(__CUDACC__)
        if (mirror_ != nullptr) cudaFreeHost(mirror_);
#endif
    }

    std::size_t bytes() const {
        return there_.bytes();
    }

    // In the world, and on the host.
    template <class T = void>
    T* at(std::size_t offset = 0) const {
        return there_.template at<T>(offset);
    }
    template <class T = void>
    T* mirror(std::size_t offset = 0) const {
        if (mirror_ == nullptr) return at<T>(offset);
        return reinterpret_cast<T*>(static_cast<char*>(mirror_) + offset);
    }

    // The first bytes of it. Both come after what is in the stream.
    void send(std::size_t bytes, void* stream = nullptr) const {
        copy(at(), mirror(), bytes, stream);
    }
    void fetch(std::size_t bytes, void* stream = nullptr) const {
        copy(mirror(), at(), bytes, stream);
    }

  private:
    void copy([[maybe_unused]] void* to, [[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes,
              [[maybe_unused]] void* stream) const {
#if defined(__CUDACC__)
        if (mirror_ == nullptr || bytes == 0) return;
        detail::require_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
                                "cudaMemcpyAsync");
#endif
    }

    world_memory there_;
    void* mirror_ = nullptr;  // where it is memory of its own
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
