// Ranks that are processes, with a GPU each, of one machine or of many: NCCL moves the bytes. Compiled by nvcc; the program links NCCL
// (the target imbrex::nccl).
//
//     const rank_environment who = read_rank_environment();          started by torchrun, say
//     cudaSetDevice(*who.local_rank);
//     nccl_transport link(who);                                      all ranks meet here
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
#include <imbrex/comm/nccl_transport/exchange_note.hpp>
#include <imbrex/comm/nccl_transport/nccl_library.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/hw/world_event.hpp>
#include <imbrex/hw/world_mirror.hpp>

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
    std::chrono::milliseconds patience{60'000};
    // With ranks that have not come yet.
    std::chrono::milliseconds initialisation_patience{120'000};
};

// One rank, on the device that is current when it is made. It is used by one thread at a time.
class nccl_transport {
  public:
    explicit nccl_transport(const rank_environment& who, const nccl_options& options = {})
        : nccl_transport(who.rank, who.ranks, options) {
        const detail::shared_meeting_place place(meeting_place(who));
        ncclUniqueId id;
        fail_if_wrong(ncclGetUniqueId(&id));
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
        if (retire_all() && flushed()) {
            ncclCommDestroy(communicator_);
        } else {
            abort();
        }
    }

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    world where() const { return world::device; }

    exchange_ticket start(const exchange& one, void* stream = nullptr) {
        throw_if_failed();
        detail::require_peers(one, rank_, ranks_);
        retire();
        flight& now = begin(detail::note_of(one), stream);
        step_ = one.step;
        now.ready.hold_back(stream_.get());
        if (!now.note.peers.empty()) {
            issue([&] { return send_and_receive(one); });
        }
        end(now);
        return next_++;
    }

    void wait(exchange_ticket ticket, void* stream = nullptr) {
        throw_if_failed();
        require(ticket >= 0 && ticket < next_, "ticket: ", ticket, "; rank ", rank_, " has started ", next_,
                " exchanges");
        fail_if_wrong(detail::state_of(communicator_));
        if (flights_.empty() || ticket < flights_.front().ticket) return;
        flights_[static_cast<std::size_t>(ticket - flights_.front().ticket)].done.hold_back(stream);
    }

    void finish(void* stream = nullptr) {
        throw_if_failed();
        end_of_stream_.record(stream);
        watch_all(&end_of_stream_);
    }

    // In pieces of a size that all ranks know, so that ranks that mean different sizes still understand each other, and say so.
    void gather(const void* mine, void* all, std::size_t bytes) {
        throw_if_failed();
        const auto* from = static_cast<const std::byte*>(mine);
        auto* to = static_cast<std::byte*>(all);
        std::size_t first = 0;
        do {
            const std::size_t count = std::min(bytes - first, sizeof(gathered_piece::payload));
            const gathered_piece* pieces = gather_piece(bytes, from + first, count);
            for (int other = 0; other < ranks_; ++other) {
                require_same_size(other, pieces[other].bytes, bytes);
                for (std::size_t i = 0; i < count; ++i) to[other * bytes + first + i] = pieces[other].payload[i];
            }
            first += count;
        } while (first < bytes);
    }

  private:
    // An exchange that is not known to be done.
    struct flight {
        exchange_ticket ticket;
        detail::exchange_note note;
        world_event ready;  // in the caller's stream: what it sends is there
        world_event done;
        bool issued = false;
    };
    struct gathered_piece {
        std::uint64_t bytes;  // of all pieces together
        std::byte payload[1016];
    };

    // The rank before it meets the others.
    nccl_transport(int rank, int ranks, const nccl_options& options)
        : rank_(required(rank, ranks, options)),
          ranks_(ranks),
          options_(options),
          end_of_stream_(world::device),
          pieces_(world::device, sizeof(gathered_piece) * (static_cast<std::size_t>(ranks) + 1)),
          last_(detail::note_of_all(detail::noted_work::initialisation, detail::before_all_steps, rank, ranks)) {}

    static int required(int rank, int ranks, const nccl_options& options) {
        require(ranks >= 1, "ranks: ", ranks, "; at least one is needed");
        require(rank >= 0 && rank < ranks, "rank: ", rank, "; there are ", ranks, " ranks, 0 is the first");
        require(options.patience.count() > 0, "options.patience: ", options.patience.count(),
                " ms; it must be positive");
        require(options.initialisation_patience.count() > 0,
                "options.initialisation_patience: ", options.initialisation_patience.count(),
                " ms; it must be positive");
        return rank;
    }

    void initialise(const ncclUniqueId& id) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        settle(ncclCommInitRankConfig(&communicator_, ranks_, id, rank_, &config), options_.initialisation_patience);
    }

    flight& begin(detail::exchange_note note, void* stream) {
        if (spare_.empty()) spare_.emplace_back(world_event(world::device), world_event(world::device));
        auto [ready, done] = std::move(spare_.back());
        spare_.pop_back();
        flights_.push_back({next_, std::move(note), std::move(ready), std::move(done)});
        flights_.back().ready.record(stream);
        return flights_.back();
    }
    void end(flight& one) {
        one.done.record(stream_.get());
        one.issued = true;
    }

    ncclResult_t send_and_receive(const exchange& one) {
        for (const outgoing& send : one.sends) {
            if (send.count == 0) continue;
            const ncclResult_t status = ncclSend(send.bytes, send.count, ncclUint8, send.to, communicator_, stream());
            if (status != ncclSuccess) return status;
        }
        for (const incoming& receive : one.receives) {
            if (receive.count == 0) continue;
            const ncclResult_t status =
                ncclRecv(receive.bytes, receive.count, ncclUint8, receive.from, communicator_, stream());
            if (status != ncclSuccess) return status;
        }
        return ncclSuccess;
    }

    // The pieces of all ranks, each with this many bytes of its own.
    const gathered_piece* gather_piece(std::uint64_t all_bytes, const std::byte* from, std::size_t count) {
        auto* mine = pieces_.mirror<gathered_piece>();
        mine->bytes = all_bytes;
        for (std::size_t i = 0; i < count; ++i) mine->payload[i] = from[i];
        flight& now = begin(detail::note_of_all(detail::noted_work::gathering, step_, rank_, ranks_), stream_.get());
        pieces_.send(sizeof(gathered_piece), stream_.get());
        issue([&] {
            return ncclAllGather(pieces_.at(), pieces_.at(sizeof(gathered_piece)), sizeof(gathered_piece), ncclUint8,
                                 communicator_, stream());
        });
        pieces_.fetch(pieces_.bytes(), stream_.get());
        end(now);
        watch_all();
        return pieces_.mirror<gathered_piece>(sizeof(gathered_piece));
    }
    void require_same_size(int other, std::uint64_t theirs, std::uint64_t ours) {
        if (theirs == ours) return;
        fail_as({other, step_,
                 sentence("rank ", other, " gives ", theirs, " bytes to be gathered, and rank ", rank_, " ", ours,
                          "; all must give the same number")});
    }

    // A group of NCCL's calls. When this returns they are in the stream: only then may an event be recorded behind them.
    template <class Calls>
    void issue(const Calls& calls) {
        ncclResult_t status = ncclGroupStart();
        if (status == ncclSuccess) {
            status = calls();
            const ncclResult_t ended = ncclGroupEnd();
            if (status == ncclSuccess) status = ended;
        }
        settle(status, options_.patience);
    }
    // Until the communicator has done on the host what it was told to.
    void settle(ncclResult_t status, std::chrono::milliseconds patience) {
        fail_if_wrong(status);
        watch(patience, [] { return true; });
    }
    // Until all exchanges are done.
    void watch_all(const world_event* and_this = nullptr) {
        watch(options_.patience, [&] {
            retire();
            return flights_.empty() && (and_this == nullptr || and_this->reached());
        });
    }
    // Until the communicator has nothing to do on the host and the condition holds. Others are given time from when it is they who are
    // waited for: work of this device may go on as long as it likes, and NCCL may wait for it before it connects to a rank.
    template <class Condition>
    void watch(std::chrono::milliseconds patience, const Condition& holds) {
        detail::patience_clock clock(patience);
        for (detail::pause pause;; pause.make()) {
            const ncclResult_t state = detail::state_of(communicator_);
            fail_if_wrong(state);
            if (state == ncclSuccess && holds()) return;
            if (pause.is_short()) continue;
            retire();
            const bool awaited = flights_.empty() ? state == ncclInProgress : flights_.front().ready.reached();
            const exchange_ticket whose = flights_.empty() ? next_ : flights_.front().ticket;
            if (awaited && clock.is_over(whose, std::chrono::steady_clock::now())) {
                fail(sentence("was not done within ", patience.count(), " ms"));
            }
        }
    }
    void fail_if_wrong(ncclResult_t status) {
        if (status != ncclSuccess && status != ncclInProgress) fail("failed: " + detail::text_of(status));
    }
    // Forgets what is done, in the order in which it was started.
    void retire() {
        while (!flights_.empty() && flights_.front().issued && flights_.front().done.reached()) {
            flight& one = flights_.front();
            last_ = std::move(one.note);
            spare_.emplace_back(std::move(one.ready), std::move(one.done));
            flights_.pop_front();
        }
    }

    // Named is the first exchange that is not done, or the last one if all are.
    [[noreturn]] void fail(const std::string& how) {
        retire_all();
        const detail::exchange_note& about = flights_.empty() ? last_ : flights_.front().note;
        fail_as({about.blamed, about.step,
                 sentence("rank ", rank_, " of ", ranks_, ": ", detail::described(about), " ", how)});
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
        flights_.clear();
    }
    // Whether all is known to be done. Where the device itself fails, nothing more is.
    bool retire_all() {
        try {
            retire();
        } catch (const cuda_error&) {
            return false;
        }
        return flights_.empty();
    }
    // Whether NCCL has sent off what it was given: its part may go on when the kernels are done.
    bool flushed() {
        ncclResult_t state = ncclCommFinalize(communicator_);
        detail::patience_clock clock(options_.patience);
        for (detail::pause pause; state == ncclSuccess || state == ncclInProgress; pause.make()) {
            state = detail::state_of(communicator_);
            if (state == ncclSuccess) return true;
            if (clock.is_over(next_, std::chrono::steady_clock::now())) return false;
        }
        return false;
    }

    cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.get()); }

    const int rank_;
    const int ranks_;
    const nccl_options options_;
    ncclComm_t communicator_ = nullptr;
    detail::urgent_stream stream_;
    world_event end_of_stream_;
    world_mirror pieces_;  // this rank's, and behind it those of all ranks
    std::deque<flight> flights_;
    std::vector<std::pair<world_event, world_event>> spare_;
    exchange_ticket next_ = 0;
    int step_ = detail::before_all_steps;  // of the last exchange
    detail::exchange_note last_;           // that is known to be done; the initialisation at first
    std::optional<communication_error> failure_;
};

static_assert(transport<nccl_transport>);

}  // namespace imbrex
