// A stream of one world, and a CUDA graph: launches that are captured once and replayed, so that many small kernels
// cost one host call. In the host worlds launches are synchronous, and a replay makes them again.
//
//     const world_stream stream(where);
//     cuda_graph step;
//     for (;;) step.replay(stream, [&] { first::launch(where, a, stream.get()); second::launch(...); });
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace imbrex {

inline namespace IMBREX_WORLDS {

// On the device a cudaStream_t that does not synchronise with the default stream. In the host worlds it is empty.
class world_stream {
  public:
    explicit world_stream(world where) {
        if (where != world::device) return;
#if defined(__CUDACC__)
        cudaStream_t made = nullptr;
        detail::require_success(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
        stream_ = made;
#else
        throw error(detail::host_world_only);
#endif
    }
    world_stream(const world_stream&) = delete;
    world_stream& operator=(const world_stream&) = delete;
    ~world_stream() {
#if defined(__CUDACC__)
        if (stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
#endif
    }

    void* get() const {
        return stream_;
    }

    // Waits until all work in the stream is done.
    void wait() const {
#if defined(__CUDACC__)
        if (stream_ != nullptr) {
            detail::require_success(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)), "the stream");
        }
#endif
    }

  private:
    void* stream_ = nullptr;
};

// The captured launches with their arguments. Data may change between replays, addresses may not.
class cuda_graph {
  public:
    cuda_graph() = default;
    cuda_graph(cuda_graph&& other) noexcept : graph_exec_(std::exchange(other.graph_exec_, nullptr)) {}
    cuda_graph& operator=(cuda_graph&& other) noexcept {
        std::swap(graph_exec_, other.graph_exec_);
        return *this;
    }
    ~cuda_graph() {
#if defined(__CUDACC__)
        if (graph_exec_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_exec_));
#endif
    }

    // On the first call, captures the launches that `launches()` makes in the stream; then launches the graph. On the
    // device `launches` is not called again. It must neither allocate nor wait. If it throws, nothing is captured and
    // the exception propagates.
    template <class Launches>
    void replay(const world_stream& stream, const Launches& launches) {
        if (stream.get() == nullptr) {
            launches();
            return;
        }
#if defined(__CUDACC__)
        const auto there = static_cast<cudaStream_t>(stream.get());
        if (graph_exec_ == nullptr) graph_exec_ = record(there, launches);
        detail::require_success(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_exec_), there), "cudaGraphLaunch");
#endif
    }

  private:
#if defined(__CUDACC__)
    template <class Launches>
    static cudaGraphExec_t record(cudaStream_t stream, const Launches& launches) {
        cudaGraph_t graph = nullptr;
        detail::require_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
        try {
            launches();
        } catch (...) {
            cudaStreamEndCapture(stream, &graph);
            if (graph != nullptr) cudaGraphDestroy(graph);
            cudaGetLastError();
            throw;
        }
        detail::require_success(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        cudaGraphExec_t made = nullptr;
        const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
        cudaGraphDestroy(graph);
        detail::require_success(status, "cudaGraphInstantiate");
        return made;
    }
#endif

    void* graph_exec_ = nullptr;  // a cudaGraphExec_t
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
