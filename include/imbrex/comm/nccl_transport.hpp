// Ranks that are processes, with a GPU each, of one machine or of many: NCCL moves the bytes. Compiled by nvcc; the program links NCCL
// (the target imbrex::nccl).
//
//     const rank_environment who = read_rank_environment();          started by torchrun, say
//     cudaSetDevice(*who.local_rank);
//     nccl_transport comm(who);                                      all ranks meet here
//
// Sends and receives of an exchange are one group of NCCL's, in a stream that is the transport's own: an event lets it wait for the
// caller's stream, another one lets the caller's stream wait for it. Exchanges of a rank are done one after the other. The first between
// two ranks connects them, and takes the host until the other one has started it too; after that the host waits for nobody in start()
// and wait().
//
// The communicator never blocks, so that there is a way out if a rank dies or hangs: whoever waits looks for NCCL's errors and at
// the clock. What has gone wrong is thrown once the communicator is aborted; kernels that waited for a peer have then ended, what
// is behind them in the caller's stream runs on with what is there, and each further call throws the same again. docs/transports.md
// has the rest.
#pragma once

#if !defined(__CUDACC__)
#error imbrex/comm/nccl_transport.hpp is for the device alone: it must be compiled by nvcc
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
    // With an exchange, from when its turn has come: what it sends is there, and those before it are done.
    std::chrono::milliseconds timeout{60'000};
    // With ranks that have not come yet.
    std::chrono::milliseconds initialisation_timeout{120'000};
};

// One rank, on the device that is current when it is made. It is used by one thread at a time.
class nccl_transport {
  public:
    explicit nccl_transport(const rank_environment& who, const nccl_options& options = {})
        : nccl_transport(who.rank, who.ranks, options) {
        const detail::scoped_nccl_comm_id comm_id(rendezvous_address(who));
        ncclUniqueId id;
        check(ncclGetUniqueId(&id));
        initialise(id);
    }
    // With an id that rank 0 got from ncclGetUniqueId and that all have been told, as comm/mpi_bootstrap.hpp does it.
    nccl_transport(int rank, int ranks, const ncclUniqueId& id, const nccl_options& options = {})
        : nccl_transport(rank, ranks, options) {
        initialise(id);
    }
    nccl_transport(const nccl_transport&) = delete;
    nccl_transport& operator=(const nccl_transport&) = delete;
    // Neither waits for ranks that do not come: what is still going on is cut off.
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

    // In pieces of a size that all ranks know, so that ranks that mean different sizes still understand each other, and say so.
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
    // An exchange that is not known to be done.
    struct pending_group {
        send_recv_request request;
        detail::operation_info info;
        world_event ready;  // in the caller's stream: what it sends is there
        world_event done;
        bool issued = false;
    };
    struct gather_packet {
        std::uint64_t bytes;  // of all pieces together
        std::byte payload[1016];
    };

    // The rank before it meets the others.
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

    // The pieces of all ranks, each with this many bytes of its own.
    const gather_packet* all_gather_packet(std::uint64_t all_bytes, const std::byte* from, std::size_t count) {
        auto* mine = packets_.host_pointer<gather_packet>();
        mine->bytes = all_bytes;
        for (std::size_t i = 0; i < count; ++i) mine->payload[i] = from[i];
        pending_group& now = begin(
            detail::collective_operation_info(detail::operation_kind::all_gather, step_, rank_, ranks_), stream_.get());
        packets_.send(sizeof(gather_packet), stream_.get());
        issue_group([&] {
            return ncclAllGather(packets_.at(), packets_.at(sizeof(gather_packet)), sizeof(gather_packet), ncclUint8,
                                 communicator_, stream());
        });
        packets_.fetch(packets_.bytes(), stream_.get());
        end(now);
        poll_until_idle();
        return packets_.host_pointer<gather_packet>(sizeof(gather_packet));
    }
    void require_same_size(int other, std::uint64_t theirs, std::uint64_t ours) {
        if (theirs == ours) return;
        fail_as({other, step_,
                 str_cat("rank ", other, " gives ", theirs, " bytes to be gathered, and rank ", rank_, " ", ours,
                         "; all must give the same number")});
    }

    // A group of NCCL's calls. When this returns they are in the stream: only then may an event be recorded behind them.
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
    // Until the communicator has done on the host what it was told to.
    void wait_nonblocking(ncclResult_t status, std::chrono::milliseconds timeout) {
        check(status);
        poll_until(timeout, [] { return true; });
    }
    // Until all exchanges are done.
    void poll_until_idle(const world_event* and_this = nullptr) {
        poll_until(options_.timeout, [&] {
            retire();
            return pending_.empty() && (and_this == nullptr || and_this->reached());
        });
    }
    // Until the communicator has nothing to do on the host and the condition holds. Others are given time from when it is they who are
    // waited for: work of this device may go on as long as it likes, and NCCL may wait for it before it connects to a rank.
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
    // Forgets what is done, in the order in which it was started.
    void retire() {
        while (!pending_.empty() && pending_.front().issued && pending_.front().done.reached()) {
            pending_group& one = pending_.front();
            last_ = std::move(one.info);
            spare_.emplace_back(std::move(one.ready), std::move(one.done));
            pending_.pop_front();
        }
    }

    // Named is the first exchange that is not done, or the last one if all are.
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
    // Returns when the kernels that waited for peers have ended.
    void abort() {
        ncclCommAbort(std::exchange(communicator_, nullptr));
        pending_.clear();
    }
    // Whether all is known to be done. Where the device itself fails, nothing more is.
    bool retire_all() {
        try {
            retire();
        } catch (const cuda_error&) {
            return false;
        }
        return pending_.empty();
    }
    // Whether NCCL has sent off what it was given: its part may go on when the kernels are done.
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
    pinned_staging packets_;  // this rank's, and behind it those of all ranks
    std::deque<pending_group> pending_;
    std::vector<std::pair<world_event, world_event>> spare_;
    send_recv_request next_ = 0;
    int step_ = detail::before_first_step;  // of the last exchange
    detail::operation_info last_;           // that is known to be done; the initialisation at first
    std::optional<communication_error> failure_;
};

static_assert(transport<nccl_transport>);

}  // namespace imbrex
