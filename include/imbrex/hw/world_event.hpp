// A CUDA event: a point in a stream that other streams wait for without blocking the host. In the host worlds launches
// are synchronous, and there is nothing to wait for.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace imbrex {

enum class event_timing { off, on };

inline namespace IMBREX_WORLDS {

class world_event {
  public:
    explicit world_event(world where, [[maybe_unused]] event_timing timing = event_timing::off) {
        if (where != world::device) return;
#if defined(__CUDACC__)
        cudaEvent_t made = nullptr;
        const unsigned flags = timing == event_timing::on ? cudaEventDefault : cudaEventDisableTiming;
        detail::require_success(cudaEventCreateWithFlags(&made, flags), "cudaEventCreate");
        event_ = made;
#else
        throw error(detail::host_world_only);
#endif
    }
    world_event(world_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    world_event& operator=(world_event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    ~world_event() {
#if defined(__CUDACC__)
        if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
#endif
    }

    // Captures the work that is in the stream now.
    void record([[maybe_unused]] void* stream) {
#if defined(__CUDACC__)
        if (event_ == nullptr) return;
        detail::require_success(cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)),
                                "cudaEventRecord");
#endif
    }
    // Work enqueued in the stream from now on waits for the event.
    void make_stream_wait([[maybe_unused]] void* stream) const {
#if defined(__CUDACC__)
        if (event_ == nullptr) return;
        detail::require_success(
            cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event_), 0),
            "cudaStreamWaitEvent");
#endif
    }
    // Whether the event has completed. Throws if the device has failed.
    bool reached() const {
#if defined(__CUDACC__)
        if (event_ != nullptr) {
            const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event_));
            if (status == cudaErrorNotReady) return false;
            detail::require_success(status, "an event of a stream");
        }
#endif
        return true;
    }

    // Blocks the host until the event has completed.
    void wait() const {
#if defined(__CUDACC__)
        if (event_ != nullptr) {
            detail::require_success(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "an event of a stream");
        }
#endif
    }

    // The device's time between two events with timing that have completed; 0 in the host worlds.
    double seconds_since([[maybe_unused]] const world_event& earlier) const {
#if defined(__CUDACC__)
        if (event_ != nullptr) {
            float milliseconds = 0;
            detail::require_success(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.event_),
                                                         static_cast<cudaEvent_t>(event_)),
                                    "cudaEventElapsedTime");
            return static_cast<double>(milliseconds) * 1e-3;
        }
#endif
        return 0;
    }

  private:
    void* event_ = nullptr;
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
