// NCCL transport: one process per GPU, on one machine or many. Compiled by nvcc; the program links NCCL (target
// imbrex::nccl).
//
//     const rank_environment who = read_rank_environment();          for example under torchrun
//     cudaSetDevice(*who.local_rank);
//     nccl_transport comm(who);                                      rendezvous of all ranks
//
// The sends and receives of a group are one ncclGroup in a stream of the transport, with an event before it (the
// caller's stream) and one after it. The groups of a rank run in order. The first group between two ranks connects them
// and blocks the host until the peer has started it too; after that start() and wait() do not block the host.
//
// Timeout and watchdog: the communicator is nonblocking, so that a rank can give up on a dead or hung peer. Every host
// wait polls for NCCL's asynchronous errors and checks the timeout. On failure the communicator is aborted, then a
// communication_error is thrown. Kernels that waited for a peer have then ended, later work in the caller's stream runs
// with whatever data is there, and each further call throws the same error. See docs/transports.md.
#pragma once

#if !defined(__CUDACC__)
#error imbrex/comm/nccl_transport.hpp must be compiled by nvcc
#endif

#include <imbrex/comm/bootstrap.hpp>
#include <imbrex/comm/nccl_transport/nccl_library.hpp>
#include <imbrex/comm/nccl_transport/operation_info.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/pinned_staging.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/hw/world_event.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace imbrex {

struct nccl_options {
    // For one group, from when it can run: its send buffers are ready and earlier groups are done.
    std::chrono::milliseconds timeout{60'000};
    // For the rendezvous of all ranks.
    std::chrono::milliseconds initialisation_timeout{120'000};
};

// One rank, on the device that is current at construction. Not thread-safe: one thread at a time.
class nccl_transport {
  public:
    explicit nccl_transport(const rank_environment& who, const nccl_options& options = {})
        : nccl_transport(who.rank, who.ranks, options) {
        const detail::scoped_nccl_comm_id comm_id(rendezvous_address(who));
        ncclUniqueId id;
        check(ncclGetUniqueId(&id));
        initialise(id);
    }
    // With an id that rank 0 got from ncclGetUniqueId and distributed to all, as comm/mpi_bootstrap.hpp does.
    nccl_transport(int rank, int ranks, const ncclUniqueId& id, const nccl_options& options = {})
        : nccl_transport(rank, ranks, options) {
        initialise(id);
    }
    nccl_transport(const nccl_transport&) = delete;
    nccl_transport& operator=(const nccl_transport&) = delete;
    // Does not wait for missing ranks: groups still in flight are aborted.
    ~nccl_transport() {
        if (communicator_ == nullptr) return;
        if (retire_all() && finalised()) {
            ncclCommDestroy(communicator_);
        } else {
            abort();
        }
    }

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    world where() const { return world::device; }

    send_recv_request start(const send_recv_group& one, void* stream = nullptr) {
        throw_if_failed();
        detail::require_peers(one, rank_, ranks_);
        retire();
        pending_group& now = begin(detail::operation_info_of(one), stream);
        step_ = one.step;
        now.ready.make_stream_wait(stream_.get());
        if (!now.info.peers.empty()) {
            issue_group([&] { return send_and_receive(one); });
        }
        end(now);
        return next_++;
    }

    void wait(send_recv_request request, void* stream = nullptr) {
        throw_if_failed();
        require(request >= 0 && request < next_, "request: ", request, "; rank ", rank_, " has started ", next_,
                " send/recv groups");
        check(detail::async_error_of(communicator_));
        if (pending_.empty() || request < pending_.front().request) return;
        pending_[static_cast<std::size_t>(request - pending_.front().request)].done.make_stream_wait(stream);
    }

    void synchronise(void* stream = nullptr) {
        throw_if_failed();
        stream_end_.record(stream);
        poll_until_idle(&stream_end_);
    }

    // In fixed-size packets that carry the total size, so that ranks that pass different sizes detect it instead of
    // hanging.
    void all_gather(const void* mine, void* all, std::size_t bytes) {
        throw_if_failed();
        const auto* from = static_cast<const std::byte*>(mine);
        auto* to = static_cast<std::byte*>(all);
        std::size_t first = 0;
        do {
            const std::size_t count = std::min(bytes - first, sizeof(gather_packet::payload));
            const gather_packet* packets = all_gather_packet(bytes, from + first, count);
            for (int other = 0; other < ranks_; ++other) {
                require_same_size(other, packets[other].bytes, bytes);
                for (std::size_t i = 0; i < count; ++i) to[other * bytes + first + i] = packets[other].payload[i];
            }
            first += count;
        } while (first < bytes);
    }

  private:
    // A group that is not known to be done.
    struct pending_group {
        send_recv_request request;
        detail::operation_info info;
        world_event ready;  // in the caller's stream: send buffers are ready
        world_event done;
        bool issued = false;
    };
    struct gather_packet {
        std::uint64_t bytes;  // of all packets together
        std::byte payload[1016];
    };

    // The state before the rendezvous.
    nccl_transport(int rank, int ranks, const nccl_options& options)
        : rank_(required(rank, ranks, options)),
          ranks_(ranks),
          options_(options),
          stream_end_(world::device),
          packets_(world::device, sizeof(gather_packet) * (static_cast<std::size_t>(ranks) + 1)),
          last_(detail::collective_operation_info(detail::operation_kind::initialisation, detail::before_first_step,
                                                  rank, ranks)) {}

    static int required(int rank, int ranks, const nccl_options& options) {
        require(ranks >= 1, "ranks: ", ranks, "; at least one is needed");
        require(rank >= 0 && rank < ranks, "rank: ", rank, "; there are ", ranks, " ranks, 0 is the first");
        require(options.timeout.count() > 0, "options.timeout: ", options.timeout.count(), " ms; it must be positive");
        require(options.initialisation_timeout.count() > 0,
                "options.initialisation_timeout: ", options.initialisation_timeout.count(), " ms; it must be positive");
        return rank;
    }

    void initialise(const ncclUniqueId& id) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        wait_nonblocking(ncclCommInitRankConfig(&communicator_, ranks_, id, rank_, &config),
                         options_.initialisation_timeout);
    }

    pending_group& begin(detail::operation_info info, void* stream) {
        if (spare_.empty()) spare_.emplace_back(world_event(world::device), world_event(world::device));
        auto [ready, done] = std::move(spare_.back());
        spare_.pop_back();
        pending_.push_back({next_, std::move(info), std::move(ready), std::move(done)});
        pending_.back().ready.record(stream);
        return pending_.back();
    }
    void end(pending_group& one) {
        one.done.record(stream_.get());
        one.issued = true;
    }

    ncclResult_t send_and_receive(const send_recv_group& one) {
        for (const send_op& send : one.sends) {
            if (send.bytes == 0) continue;
            const ncclResult_t status = ncclSend(send.buffer, send.bytes, ncclUint8, send.to, communicator_, stream());
            if (status != ncclSuccess) return status;
        }
        for (const recv_op& receive : one.receives) {
            if (receive.bytes == 0) continue;
            const ncclResult_t status =
                ncclRecv(receive.buffer, receive.bytes, ncclUint8, receive.from, communicator_, stream());
            if (status != ncclSuccess) return status;
        }
        return ncclSuccess;
    }

    // All-gathers one packet per rank.
    const gather_packet* all_gather_packet(std::uint64_t all_bytes, const std::byte* from, std::size_t count) {
        auto* mine = packets_.host_pointer<gather_packet>();
        mine->bytes = all_bytes;
        for (std::size_t i = 0; i < count; ++i) mine->payload[i] = from[i];
        pending_group& now = begin(
            detail::collective_operation_info(detail::operation_kind::all_gather, step_, rank_, ranks_), stream_.get());
        packets_.upload(sizeof(gather_packet), stream_.get());
        issue_group([&] {
            return ncclAllGather(packets_.at(), packets_.at(sizeof(gather_packet)), sizeof(gather_packet), ncclUint8,
                                 communicator_, stream());
        });
        packets_.download(packets_.bytes(), stream_.get());
        end(now);
        poll_until_idle();
        return packets_.host_pointer<gather_packet>(sizeof(gather_packet));
    }
    void require_same_size(int other, std::uint64_t theirs, std::uint64_t ours) {
        if (theirs == ours) return;
        fail_as({other, step_,
                 str_cat("rank ", other, " passes ", theirs, " bytes to the all-gather, rank ", rank_, " passes ", ours,
                         "; the sizes must be equal")});
    }

    // One ncclGroup. When this returns, its calls are in the stream: only then may an event be recorded after them.
    template <class Calls>
    void issue_group(const Calls& calls) {
        ncclResult_t status = ncclGroupStart();
        if (status == ncclSuccess) {
            status = calls();
            const ncclResult_t ended = ncclGroupEnd();
            if (status == ncclSuccess) status = ended;
        }
        wait_nonblocking(status, options_.timeout);
    }
    // Waits until the nonblocking communicator has finished its host-side work.
    void wait_nonblocking(ncclResult_t status, std::chrono::milliseconds timeout) {
        check(status);
        poll_until(timeout, [] { return true; });
    }
    // Waits until all groups are done.
    void poll_until_idle(const world_event* and_this = nullptr) {
        poll_until(options_.timeout, [&] {
            retire();
            return pending_.empty() && (and_this == nullptr || and_this->reached());
        });
    }
    // Polls until the communicator is idle on the host and the condition holds. The watchdog only counts time spent
    // waiting for peers: local work may take any time, and NCCL may wait for it before it connects to a rank.
    template <class Condition>
    void poll_until(std::chrono::milliseconds timeout, const Condition& holds) {
        detail::watchdog_timer clock(timeout);
        for (detail::poll_backoff backoff;; backoff.wait()) {
            const ncclResult_t state = detail::async_error_of(communicator_);
            check(state);
            if (state == ncclSuccess && holds()) return;
            if (backoff.is_short()) continue;
            retire();
            const bool awaited = pending_.empty() ? state == ncclInProgress : pending_.front().ready.reached();
            const send_recv_request oldest = pending_.empty() ? next_ : pending_.front().request;
            if (awaited && clock.expired(oldest, std::chrono::steady_clock::now())) {
                fail(str_cat("was not done within ", timeout.count(), " ms"));
            }
        }
    }
    void check(ncclResult_t status) {
        if (status != ncclSuccess && status != ncclInProgress) fail("failed: " + detail::nccl_error_text(status));
    }
    // Retires completed groups in order.
    void retire() {
        while (!pending_.empty() && pending_.front().issued && pending_.front().done.reached()) {
            pending_group& one = pending_.front();
            last_ = std::move(one.info);
            spare_.emplace_back(std::move(one.ready), std::move(one.done));
            pending_.pop_front();
        }
    }

    // The error names the first group that is not done, or the last group if all are.
    [[noreturn]] void fail(const std::string& how) {
        retire_all();
        const detail::operation_info& about = pending_.empty() ? last_ : pending_.front().info;
        fail_as({about.suspect_rank, about.step,
                 str_cat("rank ", rank_, " of ", ranks_, ": ", detail::describe(about), " ", how)});
    }
    [[noreturn]] void fail_as(const communication_error& failure) {
        failure_ = failure;
        abort();
        throw failure;
    }
    void throw_if_failed() const {
        if (failure_) throw *failure_;
    }
    // Returns after kernels that waited for peers have ended.
    void abort() {
        ncclCommAbort(std::exchange(communicator_, nullptr));
        pending_.clear();
    }
    // Whether all groups are done; false after a device error.
    bool retire_all() {
        try {
            retire();
        } catch (const cuda_error&) {
            return false;
        }
        return pending_.empty();
    }
    // Whether NCCL has flushed its sends: they may outlast the kernels.
    bool finalised() {
        ncclResult_t state = ncclCommFinalize(communicator_);
        detail::watchdog_timer clock(options_.timeout);
        for (detail::poll_backoff backoff; state == ncclSuccess || state == ncclInProgress; backoff.wait()) {
            state = detail::async_error_of(communicator_);
            if (state == ncclSuccess) return true;
            if (clock.expired(next_, std::chrono::steady_clock::now())) return false;
        }
        return false;
    }

    cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.get()); }

    const int rank_;
    const int ranks_;
    const nccl_options options_;
    ncclComm_t communicator_ = nullptr;
    detail::high_priority_stream stream_;
    world_event stream_end_;
    pinned_staging packets_;  // this rank's packet, then those of all ranks
    std::deque<pending_group> pending_;
    std::vector<std::pair<world_event, world_event>> spare_;
    send_recv_request next_ = 0;
    int step_ = detail::before_first_step;  // of the last group
    detail::operation_info last_;           // last completed operation; initially the initialisation
    std::optional<communication_error> failure_;
};

static_assert(transport<nccl_transport>);

}  // namespace imbrex
