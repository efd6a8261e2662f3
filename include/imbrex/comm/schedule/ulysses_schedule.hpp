// Attention over a sequence that is divided among ranks, which exchange heads for tokens (Ulysses): before, each has some tokens of all
// heads; then all tokens of some heads, and attends as if it were alone; and at the end its own tokens again. Three steps:
//
//     0   to every other rank: its heads of the own queries, keys and values
//     1   all tokens, own heads
//     2   to every other rank: its tokens of the output
//
// Heads are dealt out by heads of keys, with the queries that share them. So there can be no more ranks than heads of keys; where
// they are no divisor of them, some ranks have one more than others.
//
// Rows of all tokens lie in the order of their positions. Those of a rank are where its token_ranges say.
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/score_rectangles.hpp>
#include <imbrex/comm/schedule/token_ranges.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <vector>

namespace imbrex {

// From `first` on.
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

    // All tokens, which are no one rank's. Its chunk is the rank itself, which then has them.
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
        // Nobody sends to the same rank at the same time.
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

    // Tokens of one rank, heads of the other, on their way to the other or back.
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
            "; heads are exchanged for tokens, and there are ", schedule.sizes.kv_heads,
            " heads of keys: a ring or a mesh takes more ranks than that");
}

}  // namespace imbrex
