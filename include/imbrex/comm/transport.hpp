// The transport concept: point-to-point send/recv groups and a host all-gather between ranks. A rank is a thread, a
// CUDA stream or a process. Ring attention, Ulysses attention and context-parallel decode are written once for the
// concept and run on each transport:
//
//     loopback        ranks of one program: threads in the host worlds, threads with streams on one GPU or several
//     nccl_transport  one process per GPU, on one machine or many, over NCCL
//
// A send_recv_group holds all sends and receives of one rank in one step. It is started, overlaps the work that
// follows, and is waited for:
//
//     const send_recv_request kv = comm.start({.step = 3, .sends = {{next, ours, bytes}},
//                                              .receives = {{previous, theirs, bytes}}}, stream);
//     ...                                      work in the stream that neither writes `ours` nor touches `theirs`
//     comm.wait(kv, stream);                   work enqueued after this runs after the transfer
//
// On a device both calls only enqueue work: the host waits neither for the stream nor for the bytes. Messages between
// two ranks arrive in the order in which they were started, so both sides must name the same sizes in the same order.
// Buffers are in the memory of the transport's world. They belong to the transfer until it has been waited for.
//
// If a rank dies, hangs or sends an unexpected message, every other rank gets a communication_error that names a rank
// and a step, at the latest after the transport's timeout. Received data is then invalid. Send buffers are never
// written.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace imbrex {

struct send_op {
    int to = 0;
    const void* buffer = nullptr;
    std::size_t bytes = 0;
};
struct recv_op {
    int from = 0;
    void* buffer = nullptr;
    std::size_t bytes = 0;
};

struct send_recv_group {
    int step = 0;  // step of the algorithm, named in errors
    std::vector<send_op> sends = {};
    std::vector<recv_op> receives = {};

    bool empty() const { return sends.empty() && receives.empty(); }
};

// Counts the groups started by a rank, from 0.
using send_recv_request = std::int64_t;

// A send/recv group or a collective failed.
class communication_error : public error {
  public:
    communication_error(int rank, int step, const std::string& message) : error(message), rank_(rank), step_(step) {}

    // The suspected rank, -1 if unknown (over a network a rank observes its neighbours only), and the step that failed.
    int rank() const { return rank_; }
    int step() const { return step_; }

  private:
    int rank_;
    int step_;
};

template <class T>
concept transport = requires(T& comm, const send_recv_group& one, send_recv_request request, const void* mine,
                             void* all, std::size_t bytes, void* stream) {
    { comm.rank() } -> std::same_as<int>;
    { comm.ranks() } -> std::same_as<int>;
    { comm.where() } -> std::same_as<world>;
    // Ordered after the work in the stream.
    { comm.start(one, stream) } -> std::same_as<send_recv_request>;
    comm.wait(request, stream);
    // Blocks the host until the stream and all started groups are done, or an error occurs.
    comm.synchronise(stream);
    // Blocking all-gather of a few bytes of host memory, in rank order.
    comm.all_gather(mine, all, bytes);
};

namespace detail {

template <class Transport>
constexpr bool check_transport() {
    static_assert(
        transport<Transport>,
        "imbrex: Transport must have int rank(); int ranks(); world where(); "
        "send_recv_request start(const send_recv_group&, void* stream); void wait(send_recv_request, void* stream); "
        "void synchronise(void* stream); void all_gather(const void* mine, void* all, std::size_t bytes)");
    return transport<Transport>;
}

inline void require_peers(const send_recv_group& one, int rank, int ranks) {
    const auto require_peer = [&](int peer, const char* name) {
        require(peer >= 0 && peer < ranks && peer != rank, name, ": ", peer, "; rank ", rank, " of ", ranks,
                " can send to and receive from the other ranks, 0 to ", ranks - 1);
    };
    for (const send_op& send : one.sends) require_peer(send.to, "sends.to");
    for (const recv_op& receive : one.receives) require_peer(receive.from, "receives.from");
}

}  // namespace detail

}  // namespace imbrex
