// What moves bytes between ranks, behind one small concept. A rank is a thread, a stream of a GPU, or a process of a cluster; what is
// written once for a transport runs with all of them:
//
//     loopback        ranks of one program: threads in the host worlds, threads with streams on one GPU or several
//     nccl_transport  a process for each GPU, of one machine or of many
//
// An exchange is what a rank sends and receives in one step. It is started, goes on beside the work that follows, and is waited for:
//
//     const send_recv_request keys = comm.start({.step = 3, .sends = {{next, ours, bytes}}, .receives = {{before, theirs, bytes}}}, stream);
//     ...                                        work in the stream that neither writes `ours` nor touches `theirs`
//     comm.wait(keys, stream);                   what follows in the stream finds the exchange done
//
// On a device the host neither waits for the stream nor for the bytes: both calls put something into streams. What a rank sends to another
// arrives in the order in which it was started, so both sides name the same sizes in the same order. Memory is that of the transport's
// world, and belongs to the exchange until it has been waited for.
//
// If a rank dies, hangs, or sends something else than was expected, every other one gets a communication_error that names a rank and a
// step, at the latest when the transport's patience is over. Results are then not to be used; what an exchange sends is never written.
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
    int step = 0;  // of whatever the ranks do together: what an error names
    std::vector<send_op> sends = {};
    std::vector<recv_op> receives = {};

    bool empty() const { return sends.empty() && receives.empty(); }
};

// Of one rank's exchanges: the first has number 0.
using send_recv_request = std::int64_t;

// Between ranks something did not come to pass.
class communication_error : public error {
  public:
    communication_error(int rank, int step, const std::string& sentence) : error(sentence), rank_(rank), step_(step) {}

    // The rank that is to blame, as far as this one can tell (-1 if it cannot: over a network one sees neighbours alone), and the step
    // that failed.
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
    // After what is in the stream.
    { comm.start(one, stream) } -> std::same_as<send_recv_request>;
    comm.wait(request, stream);
    // The host waits until all that is in the stream, and all that was started, is done; or for an error.
    comm.synchronise(stream);
    // A few bytes of the host's memory from every rank to every rank, rank by rank. The host waits for it.
    comm.all_gather(mine, all, bytes);
};

namespace detail {

inline void require_peers(const send_recv_group& one, int rank, int ranks) {
    const auto require_peer = [&](int peer, const char* name) {
        require(peer >= 0 && peer < ranks && peer != rank, name, ": ", peer, "; rank ", rank, " of ", ranks,
                " exchanges with the others, 0 to ", ranks - 1);
    };
    for (const send_op& send : one.sends) require_peer(send.to, "sends.to");
    for (const recv_op& receive : one.receives) require_peer(receive.from, "receives.from");
}

}  // namespace detail

}  // namespace imbrex
