// What is remembered of an exchange while it goes on: enough for the sentence of an error, and for how long it may take. Pure host code, so
// that sentences and clocks are tested where there is neither a GPU nor NCCL.
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

enum class noted_work { exchange, gathering, initialisation };

inline constexpr int before_all_steps = -1;
inline constexpr int nobody_in_particular = -1;

struct exchange_note {
    noted_work work = noted_work::exchange;
    int step = before_all_steps;
    std::vector<int> peers = {};  // in order, each once
    int blamed = nobody_in_particular;
};

// Messages of no bytes are not sent. What is received is what a rank waits for, so that is whom it blames.
inline exchange_note note_of(const exchange& one) {
    exchange_note note{.step = one.step};
    for (const incoming& receive : one.receives) {
        if (receive.count > 0) note.peers.push_back(receive.from);
    }
    for (const outgoing& send : one.sends) {
        if (send.count > 0) note.peers.push_back(send.to);
    }
    if (!note.peers.empty()) note.blamed = note.peers.front();
    std::sort(note.peers.begin(), note.peers.end());
    note.peers.erase(std::unique(note.peers.begin(), note.peers.end()), note.peers.end());
    return note;
}

// Of work that all ranks do together.
inline exchange_note note_of_all(noted_work work, int step, int rank, int ranks) {
    exchange_note note{.work = work, .step = step};
    for (int other = 0; other < ranks; ++other) {
        if (other != rank) note.peers.push_back(other);
    }
    if (note.peers.size() == 1) note.blamed = note.peers.front();
    return note;
}

// "rank 3", "ranks 1 and 3", "ranks 0, 1 and 3"; of very many the first, and how many more.
inline std::string named_ranks(const std::vector<int>& ranks) {
    constexpr std::size_t most_named = 8;
    const std::size_t named = std::min(ranks.size(), most_named);
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < named; ++i) {
        if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
        text += std::to_string(ranks[i]);
    }
    if (named < ranks.size()) text += sentence(" and ", ranks.size() - named, " more");
    return text;
}

inline std::string described(const exchange_note& note) {
    const std::string with = note.peers.empty() ? "" : " with " + named_ranks(note.peers);
    switch (note.work) {
        case noted_work::exchange:
            return sentence("the exchange of step ", note.step, with);
        case noted_work::gathering:
            if (note.step == before_all_steps) return sentence("the gathering before the first step", with);
            return sentence("the gathering after step ", note.step, with);
        case noted_work::initialisation:
            break;
    }
    return sentence("the initialisation", with);
}

// How long the oldest piece of work has been the oldest. As soon as another one is, the time starts again: a long queue of exchanges that
// move on is no hang.
class patience_clock {
  public:
    using time = std::chrono::steady_clock::time_point;

    explicit patience_clock(std::chrono::milliseconds patience) : patience_(patience) {}

    // Numbers from 0.
    bool is_over(std::int64_t whose_turn, time now) {
        if (turn_ != whose_turn) {
            turn_ = whose_turn;
            since_ = now;
        }
        return now - since_ >= patience_;
    }

  private:
    std::chrono::milliseconds patience_;
    std::int64_t turn_ = -1;  // nobody's yet
    time since_ = {};
};

}  // namespace imbrex::detail
