// Attention over a sequence that is divided among ranks, as a mesh. The scores of a sequence in P chunks are P x P blocks; each rank
// computes a rectangle of P of them: the queries of `query_chunks` = a ranks with the keys of P / a = b ranks.
//
//     ranks 0 to 5, a = 2, b = 3                a ring: a = 1, b = 6
//
//               keys of                                   keys of
//               0  2  4  1  3  5                          0  1  2  3  4  5
//     queries 0 |       |       |               queries 0 |      0         |
//     of      1 |   0   |   1   |               of      1 |      1         |
//             2 |       |       |                       2 |      2         |
//             3 |   2   |   3   |                       3 |      3         |
//             4 |       |       |                       4 |      4         |
//             5 |   4   |   5   |                       5 |      5         |
//
// Rank r has queries in group r / a, whose ranks follow one another, and keys in group r % a, whose ranks are a apart: its own chunk
// is in both, and it is the only one that is. Both groups are rings. In b stages keys and values go once round theirs; in the
// first stage queries go round theirs, one hop a step; in the last one each rank finishes the queries of others first and sends the
// results home, while it computes, and its own at the end:
//
//     stage   0              1                    b - 1
//     step    0  1  2  3     4  5  6  7    ...    .  .  .  .          a = 4; a number is a hop: how far the queries have come
//     queries 0  1  2  3     0  1  2  3           1  2  3  0
//     keys    own            of the rank before   of the rank behind
//
// With a = 1 that is ring attention: no query moves and there is nothing to send home. With b = 1 no key moves.
#pragma once

#include <imbrex/comm/schedule/attended_block.hpp>
#include <imbrex/comm/schedule/block.hpp>
#include <imbrex/comm/schedule/token_runs.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <cstdint>
#include <vector>

namespace imbrex {

// How far keys go: once round, so that every rank sends the same; or no farther than to the last rank that sees something of
// them, which under a window is not far.
enum class key_travel { all_round, as_far_as_seen };

struct sequence_schedule {
    int tokens = 0;
    int ranks = 1;
    int query_chunks = 1;  // a: of these the queries are put together; it divides ranks
    token_placement placement = token_placement::contiguous;
    window_mask mask = as_window(causal_mask{});
    key_travel travel = key_travel::all_round;
    attention_sizes sizes = {};

    constexpr int key_chunks() const { return ranks / query_chunks; }
    constexpr token_runs tokens_of(int rank) const { return imbrex::tokens_of(placement, tokens, ranks, rank); }
    constexpr token_place place_of(int position) const { return imbrex::place_of(placement, tokens, ranks, position); }

    // One for each block; where no key moves, one more, in which the last results go home.
    constexpr int steps() const { return ranks + (key_chunks() == 1 && query_chunks > 1 ? 1 : 0); }
    constexpr int stage_of(int step) const { return step / query_chunks; }

    // The rank so many hops before this one in its ring, or behind it if they are negative.
    constexpr int key_source(int rank, int hops) const {
        const int group = rank / query_chunks, round = key_chunks();
        return ((group - hops) % round + round) % round * query_chunks + rank % query_chunks;
    }
    constexpr int query_source(int rank, int hops) const {
        const int first = rank / query_chunks * query_chunks;
        return first + ((rank - first - hops) % query_chunks + query_chunks) % query_chunks;
    }

    // What a rank does in a step, if anything.
    constexpr attended_block block(int rank, int step) const {
        attended_block made{};
        if (step >= ranks) return made;
        made.key_hop = stage_of(step);
        made.query_hop = query_hop_at(step);
        made.key_chunk = key_source(rank, made.key_hop);
        made.query_chunk = query_source(rank, made.query_hop);
        made.queries = tokens_of(made.query_chunk);
        made.keys = tokens_of(made.key_chunk);
        made.heads = sizes.heads;
        made.parts = parts_between(made.queries, made.keys, mask);
        return made;
    }

    // What a rank starts to send, and to receive, in a step.
    std::vector<transfer> sends(int rank, int step) const {
        std::vector<transfer> made;
        detail::add_transfer(made, keys_sent(rank, step));
        detail::add_transfer(made, queries_sent(rank, step, payload::queries));
        detail::add_transfer(made, results_sent(rank, step, payload::results, steps()));
        return made;
    }
    std::vector<transfer> receives(int rank, int step) const {
        std::vector<transfer> made;
        detail::add_transfer(made, keys_sent(key_source(rank, 1), step));
        detail::add_transfer(made, queries_sent(query_source(rank, 1), step, payload::queries));
        detail::add_transfer(made, results_sent(result_source(rank, step), step, payload::results, steps()));
        return made;
    }

    // The parts of them, for schedules that are made from this one. A transfer of no rows does not take place.
    constexpr transfer keys_sent(int rank, int step) const {
        const int hop = stage_of(step);
        if (step % query_chunks != 0 || hop >= key_chunks() - 1) return {};
        const int chunk = key_source(rank, hop);
        if (travel == key_travel::as_far_as_seen && !seen_behind(rank, hop)) return {};
        return detail::transfer_of(sizes, payload::keys_values, rank, key_source(rank, -1), chunk,
                                   tokens_of(chunk).count(), step, step + query_chunks);
    }
    constexpr transfer queries_sent(int rank, int step, payload what) const {
        if (step >= query_chunks - 1) return {};
        const int chunk = query_source(rank, step);
        return detail::transfer_of(sizes, what, rank, query_source(rank, -1), chunk, tokens_of(chunk).count(), step,
                                   step + 1);
    }
    constexpr transfer results_sent(int rank, int step, payload what, int need) const {
        const int hop = hop_sent_home(step);
        if (hop < 1 || hop >= query_chunks) return {};
        const int chunk = query_source(rank, hop);
        return detail::transfer_of(sizes, what, rank, chunk, chunk, tokens_of(chunk).count(), step, need);
    }
    constexpr int result_source(int rank, int step) const { return query_source(rank, -hop_sent_home(step)); }

  private:
    constexpr int query_hop_at(int step) const {
        const bool own_last = key_chunks() > 1 && stage_of(step) == key_chunks() - 1;
        return (step + (own_last ? 1 : 0)) % query_chunks;
    }
    // Of the queries that were finished in the step before.
    constexpr int hop_sent_home(int step) const {
        return key_chunks() > 1 ? step - (key_chunks() - 1) * query_chunks : step - 1;
    }
    // Whether a rank behind this one sees something of the keys that this one has after so many hops.
    constexpr bool seen_behind(int rank, int hop) const {
        const token_runs keys = tokens_of(key_source(rank, hop));
        for (int more = 1; hop + more < key_chunks(); ++more) {
            const int behind = key_source(rank, -more);
            for (int query = 0; query < query_chunks; ++query) {
                if (entries_between(tokens_of(query_source(behind, query)), keys, mask) > 0) return true;
            }
        }
        return false;
    }
};

inline void require_schedule(const sequence_schedule& schedule) {
    detail::require_division(schedule.tokens, schedule.ranks, schedule.mask);
    require(schedule.query_chunks >= 1 && schedule.ranks % schedule.query_chunks == 0,
            "query_chunks: ", schedule.query_chunks, "; a divisor of the ", schedule.ranks, " ranks is needed");
    require_sizes(schedule.sizes);
}

// How many chunks of queries are best put together: the divisor of the ranks with which a rank sends the fewest bytes. Without results in
// fp32 it is next to sqrt(key heads / heads * ranks).
constexpr int best_query_chunks(int ranks, const attention_sizes& sizes) {
    const std::int64_t query = sizes.heads * (sizes.bytes_of(payload::queries) + sizes.bytes_of(payload::results));
    const std::int64_t key = sizes.key_heads * sizes.bytes_of(payload::keys_values);
    int best = 1;
    const auto bytes = [&](int chunks) { return (chunks - 1) * query + (ranks / chunks - 1) * key; };
    for (int chunks = 2; chunks <= ranks; ++chunks) {
        if (ranks % chunks == 0 && bytes(chunks) < bytes(best)) best = chunks;
    }
    return best;
}

}  // namespace imbrex
