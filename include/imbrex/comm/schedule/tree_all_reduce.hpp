// The tree all-reduce (recursive doubling) of partial attention results, as data: each rank holds O and LSE over its
// own keys, and all ranks end with the merged result. In each round pairs of ranks exchange what they have and both
// merge it in the same order, so that both hold the same bits; the pairs change from round to round. This needs a power
// of two. Remainder ranks give their result to a neighbour in the first round and get the merged result in the last.
//
//     6 ranks      0     1     2     3     4     5
//     round 0      +<----'     +<----'                    1 and 3 send
//     round 1      +<--------->+           +<--->+        0 1 | 2 3          4 | 5
//     round 2      +<--------------------->+              0 1 2 3 | 4 5, and so do 2 and 5
//                              +<--------------->+
//     round 3      '---->*     '---->*                    1 and 3 receive
//
// The lower rank provides the first operand, and merged ranks are always consecutive.
//
//     const tree_all_reduce tree{.ranks = 6, .tokens = 64, .sizes = {.heads = 32, .head_dim_v = 128}};
//     for (int round = 0; round < tree.rounds(); ++round) { const tree_action action = tree.action(rank, round); ... }
//
// Per token and head a rank sends head_dim_v + 2 numbers (unnormalised O, row maximum and row sum) in each doubling:
// twice with 4 ranks, three times with 8. It sends and receives at the same time.
#pragma once

#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <bit>
#include <cstdint>
#include <vector>

namespace imbrex {

struct tree_action {
    int partner = -1;  // -1: idle
    bool sends = false;
    bool receives = false;
    bool merges = false;     // merge what it receives; otherwise replace its own
    bool own_first = false;  // its own result is the first operand

    constexpr bool idle() const { return partner < 0; }
    bool operator==(const tree_action&) const = default;
};

struct tree_all_reduce {
    int ranks = 1;
    int tokens = 0;
    attention_sizes sizes = {};

    // Ranks that take part in the doubling: the largest power of two. Remainder ranks are the odd ones among the first.
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
    // The last round in which the rank is active; -1 with a single rank.
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
        with_sums.row_stat_bytes *= 2;  // row maximum and row sum
        std::vector<transfer> made;
        detail::add_transfer(
            made, detail::transfer_of(with_sums, payload::partial_o, from, to, from, tokens, round, round + 1));
        return made;
    }
};

inline void require_tree(const tree_all_reduce& tree) {
    require(tree.ranks >= 1 && tree.ranks <= 1 << 20, "ranks: ", tree.ranks, "; 1 to ", 1 << 20, " are allowed");
    require(tree.tokens >= 0, "tokens: ", tree.tokens, "; must not be negative");
    require_sizes(tree.sizes);
}

}  // namespace imbrex
