// Loopback transport: all ranks in one program. In the host worlds ranks are threads. On the device they are threads
// with CUDA streams, on one GPU or several, ordered by copies and events: no kernel waits for another, so any number of
// ranks can share a GPU.
//
//     loopback_group group(where, 4);
//     run_ranks(group, [&](loopback& comm) { ... });       one thread per rank: comm.rank() of comm.ranks()
//
// After synchronise() a rank may free its send buffers. If a rank fails before that, others may still copy from them:
// use memory that outlives the ranks.
//
// In the checked world a seed decides which transfers arrive early and which as late as allowed. Receive buffers are
// poisoned until the wait, and send buffers are copied at the last moment. Early access to either is reported as a
// hazard or computes NaN.
#pragma once

#include <imbrex/comm/loopback/group.hpp>
#include <imbrex/comm/loopback/message_queues.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/hw/world_event.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace imbrex {

inline namespace IMBREX_WORLDS {

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
    // Step of the last group started.
    int step() const { return step_; }

    send_recv_request start(const send_recv_group& one, void* stream = nullptr) {
        detail::require_peers(one, rank_, ranks());
        queues().throw_if_failed();
        step_ = one.step;
        const auto ready = event_in(stream);
        pending_group started{first_ + static_cast<send_recv_request>(pending_.size()), one, {}, {}};
        for (const send_op& send : one.sends) {
            auto message = std::make_shared<detail::posted_message>();
            message->step = one.step;
            message->buffer = send.buffer;
            message->bytes = send.bytes;
            message->ready = ready;
            if (checked() && send.bytes > 0) {
                const auto* begin = static_cast<const std::byte*>(send.buffer);
                message->snapshot.assign(begin, begin + send.bytes);
            }
            started.sent.push_back(message);
            queues().post_send(rank_, send.to, std::move(message));
        }
        ready->make_stream_wait(copies_.get());
        for (const recv_op& receive : one.receives) {
            if (checked() && receive.bytes > 0) std::memset(receive.buffer, poison, receive.bytes);
        }
        if (!late(started.request)) receive_all(started);
        pending_.push_back(std::move(started));
        return pending_.back().request;
    }

    void wait(send_recv_request request, void* stream = nullptr) {
        require(request >= 0 && request < first_ + static_cast<send_recv_request>(pending_.size()),
                "request: ", request, "; rank ", rank_, " has started ",
                first_ + static_cast<send_recv_request>(pending_.size()), " send/recv groups");
        if (request < first_) return;
        pending_group& one = pending_[request - first_];
        receive_up_to(one);
        one.arrived->make_stream_wait(stream);
        for (std::size_t i = 0; i < one.sent.size(); ++i) {
            queues().wait_copied(*one.sent[i], rank_, one.what.sends[i].to)->make_stream_wait(stream);
        }
        one.sent.clear();
        one.what.sends.clear();
        while (!pending_.empty() && pending_.front().arrived != nullptr && pending_.front().sent.empty()) {
            pending_.pop_front();
            ++first_;
        }
    }

    void synchronise(void* stream = nullptr) {
        if (!pending_.empty()) {
            for (send_recv_request request = first_, last = pending_.back().request; request <= last; ++request) {
                wait(request, stream);
            }
        }
        event_in(stream)->wait();
        queues().throw_if_failed();
    }

    void all_gather(const void* mine, void* all, std::size_t bytes) {
        queues().all_gather(rank_, step_, mine, all, bytes);
    }

  private:
    static constexpr int poison = 0xff;  // NaN in every floating-point type

    struct pending_group {
        send_recv_request request;
        send_recv_group what;
        std::vector<std::shared_ptr<detail::posted_message>> sent;
        std::shared_ptr<world_event> arrived;
    };

    detail::message_queues& queues() const { return group_.queues(); }
    bool checked() const { return where() == world::host_checked; }
    bool late(send_recv_request request) const {
        if (!checked()) return false;
        std::uint64_t mixed = (group_.options().seed * 64 + rank_) * 1048576 + request + 1;
        mixed ^= mixed >> 31;
        mixed *= 0x9e3779b97f4a7c15u;
        return (mixed >> 40) % 4 != 0;
    }
    std::shared_ptr<world_event> event_in(void* stream) const {
        auto made = std::make_shared<world_event>(where());
        made->record(stream);
        return made;
    }

    // Messages are matched in order: first those of earlier groups that receive from the same ranks.
    void receive_up_to(pending_group& last) {
        std::vector<int> ranks;
        std::vector<pending_group*> needed;
        for (std::int64_t i = last.request - first_; i >= 0; --i) {
            pending_group& one = pending_[i];
            const auto shared = [&](const recv_op& receive) {
                return std::find(ranks.begin(), ranks.end(), receive.from) != ranks.end();
            };
            const auto& receives = one.what.receives;
            if (one.arrived != nullptr) continue;
            if (&one != &last && std::none_of(receives.begin(), receives.end(), shared)) continue;
            needed.push_back(&one);
            for (const recv_op& receive : receives) ranks.push_back(receive.from);
        }
        for (auto one = needed.rbegin(); one != needed.rend(); ++one) receive_all(**one);
    }
    void receive_all(pending_group& one) {
        std::vector<std::shared_ptr<detail::posted_message>> taken;
        for (const recv_op& receive : one.what.receives) {
            taken.push_back(queues().match_recv(receive.from, rank_, one.what.step, receive.bytes));
            const detail::posted_message& message = *taken.back();
            if (checked()) require_unmodified(one.what.step, receive, message);
            message.ready->make_stream_wait(copies_.get());
            copy_bytes(where(), receive.buffer, message.buffer, message.bytes, copies_.get());
        }
        one.arrived = event_in(copies_.get());
        for (const auto& message : taken) queues().complete(*message, one.arrived);
    }
    void require_unmodified(int step, const recv_op& receive, const detail::posted_message& message) const {
        const auto* there = static_cast<const unsigned char*>(receive.buffer);
        if (std::any_of(there, there + receive.bytes, [](unsigned char byte) { return byte != poison; })) {
            throw communication_error(rank_, step,
                                      str_cat("hazard: rank ", rank_, " writes its receive buffer for rank ",
                                              receive.from, " in step ", step, " before it waits for the request"));
        }
        if (message.bytes > 0 && std::memcmp(message.buffer, message.snapshot.data(), message.bytes) != 0) {
            throw communication_error(receive.from, step,
                                      str_cat("hazard: rank ", receive.from, " writes its send buffer for rank ", rank_,
                                              " in step ", step, " before it waits for the request"));
        }
    }

    loopback_group& group_;
    const int rank_;
    int step_ = 0;
    world_stream copies_;
    std::deque<pending_group> pending_;  // not known to be complete
    send_recv_request first_ = 0;        // index of the first pending group
};

}  // namespace IMBREX_WORLDS

static_assert(transport<loopback>);

// Runs work(comm) on every rank and returns one exception per rank, null on success. When a rank fails, every other
// rank fails at its next wait, with an error that names the failed rank.
template <class Work>
std::vector<std::exception_ptr> run_ranks_catching(loopback_group& group, const Work& work) {
    std::vector<std::exception_ptr> outcomes(group.ranks());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < group.ranks(); ++rank) {
        threads.emplace_back([&, rank] {
            int step = 0;
            try {
                group.set_device(rank);
                loopback comm(group, rank);
                try {
                    work(comm);
                } catch (...) {
                    step = comm.step();
                    throw;
                }
            } catch (const std::exception& problem) {
                group.queues().fail(rank, step, problem.what());
                outcomes[rank] = std::current_exception();
            }
            group.queues().end(rank);
        });
    }
    for (std::thread& one : threads) one.join();
    return outcomes;
}

// Rethrows the exception of the rank that failed first.
template <class Work>
void run_ranks(loopback_group& group, const Work& work) {
    const std::vector<std::exception_ptr> outcomes = run_ranks_catching(group, work);
    if (const auto failed = group.queues().failed_rank()) std::rethrow_exception(outcomes[*failed]);
}

}  // namespace imbrex
