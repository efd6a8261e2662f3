// The mailboxes of the loopback transport: one queue per pair of ranks, and a barrier for the all-gather. A message
// holds the address of the bytes; the receiver copies them and signals completion. Every wait has a timeout: if the
// peer has failed, has ended or makes no progress, the waiting rank gets a communication_error that names it.
#pragma once

#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_event.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace imbrex::detail {

inline namespace IMBREX_WORLDS {

struct posted_message {
    int step = 0;
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<world_event> ready = {};   // recorded after the bytes were produced
    std::vector<std::byte> snapshot = {};      // checked world: the bytes at start()
    std::shared_ptr<world_event> copied = {};  // set by the receiver after its copy
};

class message_queues {
  public:
    message_queues(int ranks, std::chrono::milliseconds timeout)
        : ranks_(ranks),
          timeout_(timeout),
          queues_(static_cast<std::size_t>(ranks) * ranks),
          ended_(ranks),
          gathered_(ranks),
          at_barrier_(ranks) {}

    int ranks() const { return ranks_; }

    void post_send(int from, int to, std::shared_ptr<posted_message> message) {
        change([&] { queue(from, to).push_back(std::move(message)); });
    }
    // The next message of a peer. Steps and sizes must match.
    std::shared_ptr<posted_message> match_recv(int from, int to, int step, std::size_t count) {
        std::unique_lock lock(mutex_);
        wait_for(lock, from, to, step, "sent nothing", [&] { return !queue(from, to).empty(); });
        const std::shared_ptr<posted_message> message = queue(from, to).front();
        queue(from, to).pop_front();
        if (message->step != step || message->bytes != count) {
            throw communication_error(
                from, step,
                str_cat("rank ", from, " sends ", message->bytes, " bytes in step ", message->step, ", and rank ", to,
                        " expects ", count, " bytes in step ", step, "; both sides must match"));
        }
        return message;
    }
    void complete(posted_message& message, std::shared_ptr<world_event> copied) {
        change([&] { message.copied = std::move(copied); });
    }
    // Waits until the receiver has copied the bytes; on the device, until it has enqueued the copy.
    std::shared_ptr<world_event> wait_copied(const posted_message& message, int from, int to) {
        std::unique_lock lock(mutex_);
        wait_for(lock, to, from, message.step, "did not receive what was sent to it",
                 [&] { return message.copied != nullptr; });
        return message.copied;
    }

    // The second barrier keeps the next all-gather from overwriting bytes that are still being read.
    void all_gather(int rank, int step, const void* mine, void* all, std::size_t bytes) {
        const auto* begin = static_cast<const std::byte*>(mine);
        barrier(rank, step, [&] { gathered_[rank].assign(begin, begin + bytes); });
        for (int other = 0; other < ranks_; ++other) {
            const std::vector<std::byte>& given = gathered_[other];
            if (given.size() != bytes) {
                throw communication_error(
                    other, step,
                    str_cat("rank ", other, " passes ", given.size(), " bytes to the all-gather, rank ", rank,
                            " passes ", bytes, "; the sizes must be equal"));
            }
            if (bytes > 0) std::memcpy(static_cast<std::byte*>(all) + other * bytes, given.data(), bytes);
        }
        barrier(rank, step, [] {});
    }

    // The first failure is the one reported to all ranks.
    void fail(int rank, int step, const std::string& why) {
        change([&] {
            if (!failure_) failure_ = {rank, step, str_cat("rank ", rank, " failed in step ", step, ": ", why)};
        });
    }
    void end(int rank) {
        change([&] { ended_[rank] = true; });
    }
    void throw_if_failed() {
        const std::unique_lock lock(mutex_);
        throw_failure();
    }
    std::optional<int> failed_rank() {
        const std::unique_lock lock(mutex_);
        return failure_ ? std::optional(failure_->rank) : std::nullopt;
    }

  private:
    struct failure {
        int rank;
        int step;
        std::string text;
    };

    std::deque<std::shared_ptr<posted_message>>& queue(int from, int to) {
        return queues_[static_cast<std::size_t>(from) * ranks_ + to];
    }
    template <class Change>
    void change(const Change& make) {
        {
            const std::unique_lock lock(mutex_);
            make();
        }
        changed_.notify_all();
    }
    void throw_failure() const {
        if (failure_) throw communication_error(failure_->rank, failure_->step, failure_->text);
    }
    // Waits for an action of another rank.
    template <class Condition>
    void wait_for(std::unique_lock<std::mutex>& lock, int other, int self, int step, const char* what,
                  const Condition& condition) {
        const bool moved =
            changed_.wait_for(lock, timeout_, [&] { return condition() || failure_.has_value() || ended_[other]; });
        if (condition()) return;
        throw_failure();
        throw communication_error(other, step,
                                  moved ? str_cat("rank ", other, " has ended and ", what, " in step ", step,
                                                  ", where rank ", self, " waited for it")
                                        : str_cat("rank ", other, " ", what, " in step ", step, " within ",
                                                  timeout_.count(), " ms, where rank ", self, " waited for it"));
    }
    // Barrier over all ranks.
    template <class Before>
    void barrier(int rank, int step, const Before& before) {
        std::unique_lock lock(mutex_);
        before();
        const std::int64_t generation = barrier_generation_;
        at_barrier_[rank] = true;
        if (first_missing() == ranks_) {
            at_barrier_.assign(ranks_, false);
            ++barrier_generation_;
            changed_.notify_all();
            return;
        }
        const auto some_rank_ended = [&] {
            for (int other = 0; other < ranks_; ++other) {
                if (ended_[other] && !at_barrier_[other]) return true;
            }
            return false;
        };
        changed_.wait_for(lock, timeout_, [&] {
            return barrier_generation_ != generation || failure_.has_value() || some_rank_ended();
        });
        if (barrier_generation_ != generation) return;
        throw_failure();
        const int other = first_missing();
        throw communication_error(other, step,
                                  str_cat("rank ", other, " did not reach the barrier in step ", step, " within ",
                                          timeout_.count(), " ms, or before a rank ended"));
    }
    int first_missing() const {
        int rank = 0;
        while (rank < ranks_ && at_barrier_[rank]) ++rank;
        return rank;
    }

    const int ranks_;
    const std::chrono::milliseconds timeout_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::deque<std::shared_ptr<posted_message>>> queues_;
    std::vector<char> ended_;
    std::optional<failure> failure_;
    std::vector<std::vector<std::byte>> gathered_;
    std::vector<char> at_barrier_;
    std::int64_t barrier_generation_ = 0;
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::detail
