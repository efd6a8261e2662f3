// Small wrappers around NCCL for nccl_transport: error texts, the asynchronous error state, the scoped NCCL_COMM_ID, a
// high-priority stream and the polling backoff.
#pragma once

#if !defined(__CUDACC__)
#error imbrex/comm/nccl_transport/nccl_library.hpp must be compiled by nvcc
#endif

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace imbrex::detail {

// The error code's text and NCCL's last error message, which has more detail.
inline std::string nccl_error_text(ncclResult_t status) {
    const char* last = ncclGetLastError(nullptr);
    std::string more = last == nullptr ? "" : last;
    while (!more.empty() && more.back() == '\n') more.pop_back();
    return str_cat("NCCL says '", ncclGetErrorString(status), more.empty() ? "'" : "', and '", more,
                   more.empty() ? "" : "'");
}

// ncclInProgress while host-side work is pending; also reports an error of a peer as soon as NCCL knows it.
inline ncclResult_t async_error_of(ncclComm_t communicator) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    return asked == ncclSuccess ? state : asked;
}

// Sets NCCL_COMM_ID to the rendezvous address for its lifetime: ncclGetUniqueId then returns the same id on every rank,
// and rank 0 listens there. A value set by the user is kept. The destructor removes the variable, since other
// communicators of the process (a framework's, for example) would use the same address.
class scoped_nccl_comm_id {
  public:
    explicit scoped_nccl_comm_id(const std::string& address) : mine_(std::getenv(name) == nullptr) {
        if (mine_) setenv(name, address.c_str(), 1);
    }
    scoped_nccl_comm_id(const scoped_nccl_comm_id&) = delete;
    scoped_nccl_comm_id& operator=(const scoped_nccl_comm_id&) = delete;
    ~scoped_nccl_comm_id() {
        if (mine_) unsetenv(name);
    }

  private:
    static constexpr const char* name = "NCCL_COMM_ID";
    bool mine_;
};

// Highest priority: NCCL's kernels are small, and compute waits for the data they bring.
class high_priority_stream {
  public:
    high_priority_stream() {
        int least = 0, greatest = 0;
        require_success(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
        require_success(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreate");
    }
    high_priority_stream(const high_priority_stream&) = delete;
    high_priority_stream& operator=(const high_priority_stream&) = delete;
    ~high_priority_stream() { cudaStreamDestroy(stream_); }

    void* get() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

// Spins with yield first, since most operations take microseconds, then sleeps.
class poll_backoff {
  public:
    void wait() {
        ++polls_;
        if (is_short()) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    bool is_short() const { return polls_ < 2000; }

  private:
    int polls_ = 0;
};

}  // namespace imbrex::detail
