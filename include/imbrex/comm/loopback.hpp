// Ranks of one program. In the host worlds they are threads; on the device threads with streams, of one GPU or of several, whose copies
// and events order them: no kernel waits for another.
//
//     loopback_group group(where, 4);
//     run_ranks(group, [&](loopback& link) { ... });       as link.rank() of link.ranks(), each in a thread of its own
//
// A rank that has finished() needs what it sent no more. If one fails on the way, others may still be about to copy from it: memory that
// outlives the ranks is on the safe side.
//
// In the checked world bytes arrive as late as they may, or as early, as a seed decides: what is received is spoilt until the exchange is
// waited for, and what is sent is copied at the last moment. Who reads or writes either of them too soon is told so, or computes NaN.
#pragma once

#include <imbrex/comm/loopback/mailboxes.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/hw/world_event.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace imbrex {

struct loopback_options {
    std::chrono::milliseconds patience{60000};  // with a rank that does not do what another waits for
    std::vector<int> devices = {};              // of the ranks; the current one for all if none are named
    std::uint64_t seed = 0;                     // in the checked world: which exchanges are early, and which late
};

inline namespace IMBREX_WORLDS {

class loopback_group {
  public:
    explicit loopback_group(world where, int ranks, const loopback_options& options = {})
        : where_(where), options_(options), boxes_(required(ranks, options), options.patience) {
        if (where != world::device) return;
        if (options_.devices.empty()) options_.devices.assign(ranks, current_device());
        allow_copies_between(options_.devices);
    }

    world where() const { return where_; }
    int ranks() const { return boxes_.ranks(); }
    const loopback_options& options() const { return options_; }
    detail::mailboxes& boxes() { return boxes_; }

    // Makes the device of a rank the current one of this thread.
    void choose_device([[maybe_unused]] int rank) const {
#if defined(__CUDACC__)
        if (where_ == world::device) detail::require_success(cudaSetDevice(options_.devices[rank]), "cudaSetDevice");
#endif
    }

  private:
    static int required(int ranks, const loopback_options& options) {
        require(ranks >= 1 && ranks <= 4096, "ranks: ", ranks, "; 1 to 4096 are allowed, a thread each");
        require(options.devices.empty() || static_cast<int>(options.devices.size()) == ranks,
                "options.devices: ", options.devices.size(), " of them; one is needed for each of the ", ranks,
                " ranks, or none at all");
        require(options.patience.count() > 0, "options.patience: ", options.patience.count(),
                " ms; it must be positive");
        return ranks;
    }
    static int current_device() {
#if defined(__CUDACC__)
        int device = 0;
        detail::require_success(cudaGetDevice(&device), "no current device");
        return device;
#else
        throw error(detail::host_world_alone);
#endif
    }
    // Where there is no way from one device to another, copies go through the host by themselves.
    static void allow_copies_between([[maybe_unused]] const std::vector<int>& devices) {
#if defined(__CUDACC__)
        const int before = current_device();
        for (const int from : devices) {
            for (const int to : devices) {
                int can = 0;
                if (from == to || cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess || can == 0) continue;
                detail::require_success(cudaSetDevice(from), "cudaSetDevice");
                cudaDeviceEnablePeerAccess(to, 0);
                cudaGetLastError();  // that it was allowed before is none
            }
        }
        detail::require_success(cudaSetDevice(before), "cudaSetDevice");
#endif
    }

    world where_;
    loopback_options options_;
    detail::mailboxes boxes_;
};

// One rank of a group, used by one thread.
class loopback {
  public:
    loopback(loopback_group& group, int rank) : group_(group), rank_(rank), copies_(group.where()) {
        require(rank >= 0 && rank < group.ranks(), "rank: ", rank, "; there are ", group.ranks(),
                " ranks, 0 is the first");
    }
    loopback(const loopback&) = delete;
    loopback& operator=(const loopback&) = delete;

    int rank() const { return rank_; }
    int ranks() const { return group_.ranks(); }
    world where() const { return group_.where(); }
    // The last that something was started in.
    int step() const { return step_; }

    exchange_ticket start(const exchange& one, void* stream = nullptr) {
        detail::require_peers(one, rank_, ranks());
        boxes().throw_if_failed();
        step_ = one.step;
        const auto ready = event_in(stream);
        flight started{first_ + static_cast<exchange_ticket>(flights_.size()), one, {}, {}};
        for (const outgoing& send : one.sends) {
            auto message = std::make_shared<detail::posted_message>();
            message->step = one.step;
            message->bytes = send.bytes;
            message->count = send.count;
            message->ready = ready;
            if (checked() && send.count > 0) {
                const auto* begin = static_cast<const std::byte*>(send.bytes);
                message->as_posted.assign(begin, begin + send.count);
            }
            started.sent.push_back(message);
            boxes().post(rank_, send.to, std::move(message));
        }
        ready->hold_back(copies_.get());
        for (const incoming& receive : one.receives) {
            if (checked() && receive.count > 0) std::memset(receive.bytes, spoilt, receive.count);
        }
        if (!late(started.ticket)) receive_all(started);
        flights_.push_back(std::move(started));
        return flights_.back().ticket;
    }

    void wait(exchange_ticket ticket, void* stream = nullptr) {
        require(ticket >= 0 && ticket < first_ + static_cast<exchange_ticket>(flights_.size()), "ticket: ", ticket,
                "; rank ", rank_, " has started ", first_ + static_cast<exchange_ticket>(flights_.size()),
                " exchanges");
        if (ticket < first_) return;
        flight& one = flights_[ticket - first_];
        receive_up_to(one);
        one.arrived->hold_back(stream);
        for (std::size_t i = 0; i < one.sent.size(); ++i) {
            boxes().copied(*one.sent[i], rank_, one.what.sends[i].to)->hold_back(stream);
        }
        one.sent.clear();
        one.what.sends.clear();
        while (!flights_.empty() && flights_.front().arrived != nullptr && flights_.front().sent.empty()) {
            flights_.pop_front();
            ++first_;
        }
    }

    void finish(void* stream = nullptr) {
        if (!flights_.empty()) {
            for (exchange_ticket ticket = first_, last = flights_.back().ticket; ticket <= last; ++ticket) {
                wait(ticket, stream);
            }
        }
        event_in(stream)->wait();
        boxes().throw_if_failed();
    }

    void gather(const void* mine, void* all, std::size_t bytes) { boxes().gather(rank_, step_, mine, all, bytes); }

  private:
    static constexpr int spoilt = 0xff;  // NaN in every type

    struct flight {
        exchange_ticket ticket;
        exchange what;
        std::vector<std::shared_ptr<detail::posted_message>> sent;
        std::shared_ptr<world_event> arrived;
    };

    detail::mailboxes& boxes() const { return group_.boxes(); }
    bool checked() const { return where() == world::host_checked; }
    bool late(exchange_ticket ticket) const {
        if (!checked()) return false;
        std::uint64_t mixed = (group_.options().seed * 64 + rank_) * 1048576 + ticket + 1;
        mixed ^= mixed >> 31;
        mixed *= 0x9e3779b97f4a7c15u;
        return (mixed >> 40) % 4 != 0;
    }
    std::shared_ptr<world_event> event_in(void* stream) const {
        auto made = std::make_shared<world_event>(where());
        made->record(stream);
        return made;
    }

    // Messages of a rank are taken in their order: those of earlier exchanges with the same ranks come first.
    void receive_up_to(flight& last) {
        std::vector<int> ranks;
        std::vector<flight*> needed;
        for (std::int64_t i = last.ticket - first_; i >= 0; --i) {
            flight& one = flights_[i];
            const auto shared = [&](const incoming& receive) {
                return std::find(ranks.begin(), ranks.end(), receive.from) != ranks.end();
            };
            const auto& receives = one.what.receives;
            if (one.arrived != nullptr) continue;
            if (&one != &last && std::none_of(receives.begin(), receives.end(), shared)) continue;
            needed.push_back(&one);
            for (const incoming& receive : receives) ranks.push_back(receive.from);
        }
        for (auto one = needed.rbegin(); one != needed.rend(); ++one) receive_all(**one);
    }
    void receive_all(flight& one) {
        std::vector<std::shared_ptr<detail::posted_message>> taken;
        for (const incoming& receive : one.what.receives) {
            taken.push_back(boxes().take(receive.from, rank_, one.what.step, receive.count));
            const detail::posted_message& message = *taken.back();
            if (checked()) require_untouched(one.what.step, receive, message);
            message.ready->hold_back(copies_.get());
            copy_bytes(where(), receive.bytes, message.bytes, message.count, copies_.get());
        }
        one.arrived = event_in(copies_.get());
        for (const auto& message : taken) boxes().put_copied(*message, one.arrived);
    }
    void require_untouched(int step, const incoming& receive, const detail::posted_message& message) const {
        const auto* there = static_cast<const unsigned char*>(receive.bytes);
        if (std::any_of(there, there + receive.count, [](unsigned char byte) { return byte != spoilt; })) {
            throw communication_error(rank_, step,
                                      sentence("hazard: rank ", rank_, " writes what it receives from rank ",
                                               receive.from, " in step ", step, " before it has waited for it"));
        }
        if (message.count > 0 && std::memcmp(message.bytes, message.as_posted.data(), message.count) != 0) {
            throw communication_error(receive.from, step,
                                      sentence("hazard: rank ", receive.from, " writes what it sends to rank ", rank_,
                                               " in step ", step, " before it has waited for it"));
        }
    }

    loopback_group& group_;
    const int rank_;
    int step_ = 0;
    world_stream copies_;
    std::deque<flight> flights_;  // that are not known to be over
    exchange_ticket first_ = 0;   // of them
};

}  // namespace IMBREX_WORLDS

static_assert(transport<loopback>);

// What became of each rank: null where it ended well. A rank that fails is told to all others, which fail too as soon as they wait for
// somebody.
template <class Work>
std::vector<std::exception_ptr> outcomes_of_ranks(loopback_group& group, const Work& work) {
    std::vector<std::exception_ptr> outcomes(group.ranks());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < group.ranks(); ++rank) {
        threads.emplace_back([&, rank] {
            int step = 0;
            try {
                group.choose_device(rank);
                loopback link(group, rank);
                try {
                    work(link);
                } catch (...) {
                    step = link.step();
                    throw;
                }
            } catch (const std::exception& problem) {
                group.boxes().fail(rank, step, problem.what());
                outcomes[rank] = std::current_exception();
            }
            group.boxes().end(rank);
        });
    }
    for (std::thread& one : threads) one.join();
    return outcomes;
}

// Throws what the rank threw that failed first.
template <class Work>
void run_ranks(loopback_group& group, const Work& work) {
    const std::vector<std::exception_ptr> outcomes = outcomes_of_ranks(group, work);
    if (const auto failed = group.boxes().failed_rank()) std::rethrow_exception(outcomes[*failed]);
}

}  // namespace imbrex
