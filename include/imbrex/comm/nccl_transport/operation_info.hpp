// Bookkeeping of a pending operation of nccl_transport: what an error message needs (step, peers, suspected rank), and
// the watchdog that decides when the timeout has expired. Pure host code, so that messages and timers are tested
// without a GPU or NCCL.
#pragma once

#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace imbrex::detail {

enum class operation_kind { send_recv, all_gather, initialisation };

inline constexpr int before_first_step = -1;
inline constexpr int unknown_rank = -1;

struct operation_info {
    operation_kind kind = operation_kind::send_recv;
    int step = before_first_step;
    std::vector<int> peers = {};  // sorted, unique
    int suspect_rank = unknown_rank;
};

// Empty messages are not sent. A rank waits for what it receives, so the first sender is the suspect.
inline operation_info operation_info_of(const send_recv_group& one) {
    operation_info info{.step = one.step};
    for (const recv_op& receive : one.receives) {
        if (receive.bytes > 0) info.peers.push_back(receive.from);
    }
    for (const send_op& send : one.sends) {
        if (send.bytes > 0) info.peers.push_back(send.to);
    }
    if (!info.peers.empty()) info.suspect_rank = info.peers.front();
    std::sort(info.peers.begin(), info.peers.end());
    info.peers.erase(std::unique(info.peers.begin(), info.peers.end()), info.peers.end());
    return info;
}

// For collectives: all other ranks are peers.
inline operation_info collective_operation_info(operation_kind kind, int step, int rank, int ranks) {
    operation_info info{.kind = kind, .step = step};
    for (int other = 0; other < ranks; ++other) {
        if (other != rank) info.peers.push_back(other);
    }
    if (info.peers.size() == 1) info.suspect_rank = info.peers.front();
    return info;
}

// "rank 3", "ranks 1 and 3", "ranks 0, 1 and 3"; long lists name the first 8 and the number of the others.
inline std::string rank_list_text(const std::vector<int>& ranks) {
    constexpr std::size_t max_named = 8;
    const std::size_t named = std::min(ranks.size(), max_named);
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < named; ++i) {
        if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
        text += std::to_string(ranks[i]);
    }
    if (named < ranks.size()) text += str_cat(" and ", ranks.size() - named, " more");
    return text;
}

inline std::string describe(const operation_info& info) {
    const std::string with = info.peers.empty() ? "" : " with " + rank_list_text(info.peers);
    switch (info.kind) {
        case operation_kind::send_recv:
            return str_cat("the send/recv group of step ", info.step, with);
        case operation_kind::all_gather:
            if (info.step == before_first_step) return str_cat("the all-gather before the first step", with);
            return str_cat("the all-gather after step ", info.step, with);
        case operation_kind::initialisation:
            break;
    }
    return str_cat("the initialisation", with);
}

// Watchdog: measures how long the oldest pending operation has been the oldest, and restarts when it completes. A long
// queue that makes progress is not a hang.
class watchdog_timer {
  public:
    using time = std::chrono::steady_clock::time_point;

    explicit watchdog_timer(std::chrono::milliseconds timeout) : timeout_(timeout) {}

    // `oldest` counts from 0.
    bool expired(std::int64_t oldest, time now) {
        if (oldest_ != oldest) {
            oldest_ = oldest;
            since_ = now;
        }
        return now - since_ >= timeout_;
    }

  private:
    std::chrono::milliseconds timeout_;
    std::int64_t oldest_ = -1;  // none yet
    time since_ = {};
};

}  // namespace imbrex::detail
