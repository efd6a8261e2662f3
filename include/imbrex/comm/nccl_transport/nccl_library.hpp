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
inline std::string text_of(ncclResult_t status) {
    const char* last = ncclGetLastError(nullptr);
    std::string more = last == nullptr ? "" : last;
    while (!more.empty() && more.back() == '\n') more.pop_back();
    return sentence("NCCL says '", ncclGetErrorString(status), more.empty() ? "'" : "', and '", more,
                    more.empty() ? "" : "'");
}

// ncclInProgress as long as it has not done what it was told to; an error of a peer, too, as soon as it is known.
inline ncclResult_t state_of(ncclComm_t communicator) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    return asked == ncclSuccess ? state : asked;
}

// As long as it lives, NCCL_COMM_ID names the place where the ranks meet: every rank's ncclGetUniqueId gives the same id, and rank
// 0 listens there. One that the user has set stays. Afterwards it is taken away again, since other communicators of the process (a
// framework's, say) would try to meet there as well.
class shared_meeting_place {
  public:
    explicit shared_meeting_place(const std::string& place) : mine_(std::getenv(name) == nullptr) {
        if (mine_) setenv(name, place.c_str(), 1);
    }
    shared_meeting_place(const shared_meeting_place&) = delete;
    shared_meeting_place& operator=(const shared_meeting_place&) = delete;
    ~shared_meeting_place() {
        if (mine_) unsetenv(name);
    }

  private:
    static constexpr const char* name = "NCCL_COMM_ID";
    bool mine_;
};

// Of all that wait for a place on the device, its kernels come first: NCCL's are small, and others wait for what they bring.
class urgent_stream {
  public:
    urgent_stream() {
        int least = 0, greatest = 0;
        require_success(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
        require_success(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreate");
    }
    urgent_stream(const urgent_stream&) = delete;
    urgent_stream& operator=(const urgent_stream&) = delete;
    ~urgent_stream() { cudaStreamDestroy(stream_); }

    void* get() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

// Between two looks at something: hardly any at first, since most of it takes microseconds.
class pause {
  public:
    void make() {
        ++made_;
        if (is_short()) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    bool is_short() const { return made_ < 2000; }

  private:
    int made_ = 0;
};

}  // namespace imbrex::detail
