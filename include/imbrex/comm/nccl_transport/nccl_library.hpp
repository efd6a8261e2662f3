// What nccl_transport needs of NCCL and CUDA that is not about exchanges: NCCL's texts and its state, its way to let ranks meet, a
// stream, and how to wait between two looks.
#pragma once

#if !defined(__CUDACC__)
#error imbrex/comm/nccl_transport/nccl_library.hpp is for the device alone: it must be compiled by nvcc
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

// The kind of error, and what NCCL says of the last one, which has more to it.
inline std::string nccl_error_text(ncclResult_t status) {
    const char* last = ncclGetLastError(nullptr);
    std::string more = last == nullptr ? "" : last;
    while (!more.empty() && more.back() == '\n') more.pop_back();
    return str_cat("NCCL says '", ncclGetErrorString(status), more.empty() ? "'" : "', and '", more,
                   more.empty() ? "" : "'");
}

// ncclInProgress as long as it has not done what it was told to; an error of a peer, too, as soon as it is known.
inline ncclResult_t async_error_of(ncclComm_t communicator) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    return asked == ncclSuccess ? state : asked;
}

// As long as it lives, NCCL_COMM_ID names the place where the ranks meet: every rank's ncclGetUniqueId gives the same id, and rank
// 0 listens there. One that the user has set stays. Afterwards it is taken away again, since other communicators of the process (a
// framework's, say) would try to meet there as well.
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

// Of all that wait for a place on the device, its kernels come first: NCCL's are small, and others wait for what they bring.
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

// Between two looks at something: hardly any at first, since most of it takes microseconds.
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
