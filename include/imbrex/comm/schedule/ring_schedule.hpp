// Ring attention as a 2D mesh schedule (q_chunks = 1 is the plain ring; with zigzag placement it is zigzag ring
// attention). The scores of a sequence in P chunks are P x P blocks. Each rank computes a rectangle of P of them: the
// queries of `q_chunks` = a ranks against the keys of P / a = b ranks.
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
// Rank r takes its queries from group r / a, of a consecutive ranks, and its keys from group r % a, of ranks with
// stride a. Rank r is the only member of both. Both groups are rings. In b stages K and V rotate once around theirs. In
// the first stage queries rotate around theirs, one hop per step. In the last stage each rank finishes the queries of
// other ranks first and sends the partial results back while it computes; its own queries come last:
//
//     stage   0              1                    b - 1
//     step    0  1  2  3     4  5  6  7    ...    .  .  .  .          a = 4; numbers are hops of the queries
//     queries 0  1  2  3     0  1  2  3           1  2  3  0
//     keys    own            of the rank before   of the rank after
//
// With a = 1 this is ring attention: queries stay, and no partial result is sent. With b = 1 keys stay.
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/score_rectangles.hpp>
#include <imbrex/comm/schedule/token_ranges.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <cstdint>
#include <vector>

namespace imbrex {

// How far K and V rotate: around the full ring, so that every rank sends the same; or only as far as the last rank that
// sees any of them, which saves most hops under a sliding window.
enum class kv_rotation { full_ring, while_visible };

struct ring_schedule {
    int tokens = 0;
    int ranks = 1;
    int q_chunks = 1;  // a: ranks whose queries a rank processes; must divide ranks
    token_placement placement = token_placement::contiguous;
    window_mask mask = as_window(causal_mask{});
    kv_rotation rotation = kv_rotation::full_ring;
    attention_sizes sizes = {};

    constexpr int kv_chunks() const { return ranks / q_chunks; }
    constexpr token_ranges tokens_of(int rank) const { return imbrex::tokens_of(placement, tokens, ranks, rank); }
    constexpr token_location location_of(int position) const {
        return imbrex::location_of(placement, tokens, ranks, position);
    }

    // One per block; with b = 1 one more, in which the last partial results return.
    constexpr int steps() const { return ranks + (kv_chunks() == 1 && q_chunks > 1 ? 1 : 0); }
    constexpr int stage_of(int step) const { return step / q_chunks; }

    // The rank `hops` before this one in its ring, after it if negative.
    constexpr int kv_source(int rank, int hops) const {
        const int group = rank / q_chunks, round = kv_chunks();
        return ((group - hops) % round + round) % round * q_chunks + rank % q_chunks;
    }
    constexpr int q_source(int rank, int hops) const {
        const int first = rank / q_chunks * q_chunks;
        return first + ((rank - first - hops) % q_chunks + q_chunks) % q_chunks;
    }

    // The block of a rank in a step; empty if it is idle.
    constexpr attention_block block(int rank, int step) const {
        attention_block made{};
        if (step >= ranks) return made;
        made.kv_hop = stage_of(step);
        made.q_hop = q_hop_at(step);
        made.kv_chunk = kv_source(rank, made.kv_hop);
        made.q_chunk = q_source(rank, made.q_hop);
        made.q_tokens = tokens_of(made.q_chunk);
        made.k_tokens = tokens_of(made.kv_chunk);
        made.heads = sizes.heads;
        made.rectangles = score_rectangles_between(made.q_tokens, made.k_tokens, mask);
        return made;
    }

    // Transfers that a rank posts in a step.
    std::vector<transfer> sends(int rank, int step) const {
        std::vector<transfer> made;
        detail::add_transfer(made, kv_transfer(rank, step));
        detail::add_transfer(made, q_transfer(rank, step, payload::q));
        detail::add_transfer(made, partial_transfer(rank, step, payload::partial_o, steps()));
        return made;
    }
    std::vector<transfer> receives(int rank, int step) const {
        std::vector<transfer> made;
        detail::add_transfer(made, kv_transfer(kv_source(rank, 1), step));
        detail::add_transfer(made, q_transfer(q_source(rank, 1), step, payload::q));
        detail::add_transfer(made, partial_transfer(partial_source(rank, step), step, payload::partial_o, steps()));
        return made;
    }

    // Single transfers, for derived schedules (backward). A transfer without rows is dropped.
    constexpr transfer kv_transfer(int rank, int step) const {
        const int hop = stage_of(step);
        if (step % q_chunks != 0 || hop >= kv_chunks() - 1) return {};
        const int chunk = kv_source(rank, hop);
        if (rotation == kv_rotation::while_visible && !visible_downstream(rank, hop)) return {};
        return detail::transfer_of(sizes, payload::kv, rank, kv_source(rank, -1), chunk, tokens_of(chunk).count(), step,
                                   step + q_chunks);
    }
    constexpr transfer q_transfer(int rank, int step, payload what) const {
        if (step >= q_chunks - 1) return {};
        const int chunk = q_source(rank, step);
        return detail::transfer_of(sizes, what, rank, q_source(rank, -1), chunk, tokens_of(chunk).count(), step,
                                   step + 1);
    }
    constexpr transfer partial_transfer(int rank, int step, payload what, int needed_step) const {
        const int hop = returned_hop(step);
        if (hop < 1 || hop >= q_chunks) return {};
        const int chunk = q_source(rank, hop);
        return detail::transfer_of(sizes, what, rank, chunk, chunk, tokens_of(chunk).count(), step, needed_step);
    }
    constexpr int partial_source(int rank, int step) const { return q_source(rank, -returned_hop(step)); }

  private:
    constexpr int q_hop_at(int step) const {
        const bool own_last = kv_chunks() > 1 && stage_of(step) == kv_chunks() - 1;
        return (step + (own_last ? 1 : 0)) % q_chunks;
    }
    // Hop of the queries finished in the previous step.
    constexpr int returned_hop(int step) const {
        return kv_chunks() > 1 ? step - (kv_chunks() - 1) * q_chunks : step - 1;
    }
    // Whether a later rank of the ring sees any key of the chunk that this rank holds after `hop` hops.
    constexpr bool visible_downstream(int rank, int hop) const {
        const token_ranges keys = tokens_of(kv_source(rank, hop));
        for (int more = 1; hop + more < kv_chunks(); ++more) {
            const int behind = kv_source(rank, -more);
            for (int query = 0; query < q_chunks; ++query) {
                if (unmasked_scores_between(tokens_of(q_source(behind, query)), keys, mask) > 0) return true;
            }
        }
        return false;
    }
};

inline void require_schedule(const ring_schedule& schedule) {
    detail::require_division(schedule.tokens, schedule.ranks, schedule.mask);
    require(schedule.q_chunks >= 1 && schedule.ranks % schedule.q_chunks == 0, "q_chunks: ", schedule.q_chunks,
            "; must divide the ", schedule.ranks, " ranks");
    require_sizes(schedule.sizes);
}

// The q_chunks that minimises the bytes sent per rank, among the divisors of `ranks`. Without fp32 partial results it
// is close to sqrt(kv_heads / heads * ranks).
constexpr int best_q_chunks(int ranks, const attention_sizes& sizes) {
    const std::int64_t query = sizes.heads * (sizes.bytes_of(payload::q) + sizes.bytes_of(payload::partial_o));
    const std::int64_t key = sizes.kv_heads * sizes.bytes_of(payload::kv);
    int best = 1;
    const auto bytes = [&](int chunks) { return (chunks - 1) * query + (ranks / chunks - 1) * key; };
    for (int chunks = 2; chunks <= ranks; ++chunks) {
        if (ranks % chunks == 0 && bytes(chunks) < bytes(best)) best = chunks;
    }
    return best;
}

}  // namespace imbrex
