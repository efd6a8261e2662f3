// Results of different keys, one on each rank, merged until every rank has that of all: a tree, as data. In each round two ranks
// exchange what they have and both merge it, in the same order, so that both have the same bits afterwards; the next time each
// meets a rank of another pair. That takes a power of two. Ranks that are too many for it give what they have to their neighbours
// at first, and get the result at last.
//
//     6 ranks      0     1     2     3     4     5
//     round 0      +<----'     +<----'                    1 and 3 give
//     round 1      +<--------->+           +<--->+        0 1 | 2 3          4 | 5
//     round 2      +<--------------------->+              0 1 2 3 | 4 5, and so do 2 and 5
//                              +<--------------->+
//     round 3      '---->*     '---->*                    1 and 3 get
//
// Whoever has the lower number has the first operand, and merged ranks always follow one another.
//
//     const tree_all_reduce tree{.ranks = 6, .tokens = 64, .sizes = {.heads = 32, .head_dim_v = 128}};
//     for (int round = 0; round < tree.rounds(); ++round) { const tree_action action = tree.action(rank, round); ... }
//
// A rank sends (head_dim_v + 2) numbers of each token and head, the sums, a largest score and the sum of weights, once for each doubling
// from 2 ranks to all of them: two times of that with 4 ranks, three times with 8; and it sends and receives at the same time.
#pragma once

#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <bit>
#include <cstdint>
#include <vector>

namespace imbrex {

// What a rank does in a round.
struct tree_action {
    int partner = -1;  // none: nothing
    bool sends = false;
    bool receives = false;
    bool merges = false;     // what it receives with what it has; otherwise it has that from then on
    bool own_first = false;  // what it has is the first operand

    constexpr bool idle() const { return partner < 0; }
    bool operator==(const tree_action&) const = default;
};

struct tree_all_reduce {
    int ranks = 1;
    int tokens = 0;
    attention_sizes sizes = {};

    // Ranks that exchange: as many as a power of two has room for. The others come between the first of them.
    constexpr int power_of_two_ranks() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks))); }
    constexpr int remainder_ranks() const { return ranks - power_of_two_ranks(); }

    constexpr int rounds() const { return doublings() + (remainder_ranks() > 0 ? 2 : 0); }
    constexpr tree_action action(int rank, int round) const {
        const bool beside = rank < 2 * remainder_ranks(), gives = rank % 2 == 1;
        if (remainder_ranks() > 0 && (round == 0 || round == rounds() - 1)) {
            const bool first = round == 0;
            if (!beside) return {};
            if (gives) return {rank - 1, first, !first, false, false};
            return {rank + 1, !first, first, first, first};
        }
        if (beside && gives) return {};
        const int member = beside ? rank / 2 : rank - remainder_ranks();
        const int other = member ^ (1 << (round - (remainder_ranks() > 0 ? 1 : 0)));
        return {other < remainder_ranks() ? 2 * other : other + remainder_ranks(), true, true, true, member < other};
    }
    // Of those in which the rank does something, -1 if it is alone.
    constexpr int last_round(int rank) const {
        return rounds() - (remainder_ranks() > 0 && rank >= 2 * remainder_ranks() ? 2 : 1);
    }

    std::vector<transfer> sends(int rank, int round) const {
        const tree_action now = action(rank, round);
        return now.sends ? transfers(rank, now.partner, round) : std::vector<transfer>{};
    }
    std::vector<transfer> receives(int rank, int round) const {
        const tree_action now = action(rank, round);
        return now.receives ? transfers(now.partner, rank, round) : std::vector<transfer>{};
    }
    std::int64_t bytes_sent(int rank) const {
        std::int64_t bytes = 0;
        for (int round = 0; round < rounds(); ++round) {
            for (const transfer& one : sends(rank, round)) bytes += one.bytes;
        }
        return bytes;
    }

  private:
    constexpr int doublings() const { return std::bit_width(static_cast<unsigned>(power_of_two_ranks())) - 1; }

    std::vector<transfer> transfers(int from, int to, int round) const {
        attention_sizes with_sums = sizes;
        with_sums.row_stat_bytes *= 2;  // a largest score and a sum
        std::vector<transfer> made;
        detail::add_transfer(
            made, detail::transfer_of(with_sums, payload::partial_o, from, to, from, tokens, round, round + 1));
        return made;
    }
};

inline void require_tree(const tree_all_reduce& tree) {
    require(tree.ranks >= 1 && tree.ranks <= 1 << 20, "ranks: ", tree.ranks, "; 1 to ", 1 << 20, " are allowed");
    require(tree.tokens >= 0, "tokens: ", tree.tokens, "; it must not be negative");
    require_sizes(tree.sizes);
}

}  // namespace imbrex
