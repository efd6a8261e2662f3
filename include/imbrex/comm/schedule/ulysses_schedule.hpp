// Ulysses attention (DeepSpeed-Ulysses): sequence parallelism by all-to-all over heads. Each rank starts with some
// tokens of all heads, holds all tokens of some heads for the attention, and ends with its own tokens of all heads.
// Three steps:
//
//     0   all-to-all: Q, K and V of each rank's heads to that rank
//     1   attention over all tokens of the rank's heads
//     2   all-to-all: O of each rank's tokens back to that rank
//
// Heads are split by KV head, with the query heads that share it (GQA). So there can be no more ranks than KV heads; if
// ranks do not divide the KV heads, some ranks have one more than others.
//
// The gathered rows are in position order. The token_ranges of a rank say which of them are its own.
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/score_rectangles.hpp>
#include <imbrex/comm/schedule/token_ranges.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <vector>

namespace imbrex {

// Heads first to first + count - 1.
struct head_range {
    int first;
    int count;
};

struct ulysses_schedule {
    int tokens = 0;
    int ranks = 1;
    token_placement placement = token_placement::contiguous;
    window_mask mask = as_window(causal_mask{});
    attention_sizes sizes = {};

    constexpr token_ranges tokens_of(int rank) const { return imbrex::tokens_of(placement, tokens, ranks, rank); }
    constexpr token_location location_of(int position) const {
        return imbrex::location_of(placement, tokens, ranks, position);
    }
    constexpr head_range kv_heads_of(int rank) const {
        const token_range piece = detail::even_split(sizes.kv_heads, ranks, rank);
        return {piece.first, piece.count};
    }
    constexpr head_range heads_of(int rank) const {
        const int shared = sizes.heads / sizes.kv_heads;
        const head_range keys = kv_heads_of(rank);
        return {keys.first * shared, keys.count * shared};
    }

    constexpr int steps() const { return 3; }

    // The block covers all tokens; its chunk is the rank itself.
    constexpr attention_block block(int rank, int step) const {
        attention_block made{};
        if (step != 1) return made;
        made.q_chunk = made.kv_chunk = rank;
        made.q_tokens.ranges[0] = made.k_tokens.ranges[0] = {0, tokens};
        made.first_head = heads_of(rank).first;
        made.heads = heads_of(rank).count;
        made.rectangles = score_rectangles_between(made.q_tokens, made.k_tokens, mask);
        return made;
    }

    std::vector<transfer> sends(int rank, int step) const {
        std::vector<transfer> made;
        // Ordered by distance, so that no two ranks send to the same rank at the same time.
        for (int distance = 1; distance < ranks; ++distance) all_to_all(made, rank, (rank + distance) % ranks, step);
        return made;
    }
    std::vector<transfer> receives(int rank, int step) const {
        std::vector<transfer> made;
        for (int distance = 1; distance < ranks; ++distance) {
            all_to_all(made, (rank + ranks - distance) % ranks, rank, step);
        }
        return made;
    }

    // One message of the all-to-all: the tokens of one rank, the heads of the other, forward or back.
    void add_all_to_all(std::vector<transfer>& all, payload what, int from, int to, int step) const {
        const bool back = step == 2;
        const int chunk = back ? to : from, by_heads = back ? from : to;
        const head_range heads = is_per_kv_head(what) ? kv_heads_of(by_heads) : heads_of(by_heads);
        detail::add_transfer(all, detail::transfer_of(sizes, what, from, to, chunk, tokens_of(chunk).count(), step,
                                                      step + 1, heads.first, heads.count));
    }

  private:
    void all_to_all(std::vector<transfer>& all, int from, int to, int step) const {
        if (step == 0) {
            add_all_to_all(all, payload::q, from, to, step);
            add_all_to_all(all, payload::kv, from, to, step);
        } else if (step == 2) {
            add_all_to_all(all, payload::o, from, to, step);
        }
    }
};

inline void require_schedule(const ulysses_schedule& schedule) {
    detail::require_division(schedule.tokens, schedule.ranks, schedule.mask);
    require_sizes(schedule.sizes);
    require(schedule.ranks <= schedule.sizes.kv_heads, "ranks: ", schedule.ranks,
            "; Ulysses allows at most one rank per KV head, and there are ", schedule.sizes.kv_heads,
            " KV heads; use a ring or a mesh for more ranks");
}

}  // namespace imbrex
