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
// Rows of all tokens lie in the order of their positions. Those of a rank are where its token_runs say.
#pragma once

#include <imbrex/comm/schedule/attended_block.hpp>
#include <imbrex/comm/schedule/block.hpp>
#include <imbrex/comm/schedule/token_runs.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <vector>

namespace imbrex {

// From `first` on.
struct head_range {
    int first;
    int count;
};

struct head_schedule {
    int tokens = 0;
    int ranks = 1;
    token_placement placement = token_placement::contiguous;
    window_mask mask = as_window(causal_mask{});
    attention_sizes sizes = {};

    constexpr token_runs tokens_of(int rank) const { return imbrex::tokens_of(placement, tokens, ranks, rank); }
    constexpr token_place place_of(int position) const { return imbrex::place_of(placement, tokens, ranks, position); }
    constexpr head_range key_heads_of(int rank) const {
        const token_run piece = detail::piece_of(sizes.key_heads, ranks, rank);
        return {piece.first, piece.count};
    }
    constexpr head_range heads_of(int rank) const {
        const int shared = sizes.heads / sizes.key_heads;
        const head_range keys = key_heads_of(rank);
        return {keys.first * shared, keys.count * shared};
    }

    constexpr int steps() const { return 3; }

    // All tokens, which are no one rank's. Its chunk is the rank itself, which then has them.
    constexpr attended_block block(int rank, int step) const {
        attended_block made{};
        if (step != 1) return made;
        made.query_chunk = made.key_chunk = rank;
        made.queries.runs[0] = made.keys.runs[0] = {0, tokens};
        made.first_head = heads_of(rank).first;
        made.heads = heads_of(rank).count;
        made.parts = parts_between(made.queries, made.keys, mask);
        return made;
    }

    std::vector<transfer> sends(int rank, int step) const {
        std::vector<transfer> made;
        // Nobody sends to the same rank at the same time.
        for (int distance = 1; distance < ranks; ++distance) exchange(made, rank, (rank + distance) % ranks, step);
        return made;
    }
    std::vector<transfer> receives(int rank, int step) const {
        std::vector<transfer> made;
        for (int distance = 1; distance < ranks; ++distance) {
            exchange(made, (rank + ranks - distance) % ranks, rank, step);
        }
        return made;
    }

    // Tokens of one rank, heads of the other, on their way to the other or back.
    void exchange_of(std::vector<transfer>& all, payload what, int from, int to, int step) const {
        const bool back = step == 2;
        const int chunk = back ? to : from, by_heads = back ? from : to;
        const head_range heads = by_key_heads(what) ? key_heads_of(by_heads) : heads_of(by_heads);
        detail::add_transfer(all, detail::transfer_of(sizes, what, from, to, chunk, tokens_of(chunk).count(), step,
                                                      step + 1, heads.first, heads.count));
    }

  private:
    void exchange(std::vector<transfer>& all, int from, int to, int step) const {
        if (step == 0) {
            exchange_of(all, payload::queries, from, to, step);
            exchange_of(all, payload::keys_values, from, to, step);
        } else if (step == 2) {
            exchange_of(all, payload::outputs, from, to, step);
        }
    }
};

inline void require_schedule(const head_schedule& schedule) {
    detail::require_division(schedule.tokens, schedule.ranks, schedule.mask);
    require_sizes(schedule.sizes);
    require(schedule.ranks <= schedule.sizes.key_heads, "ranks: ", schedule.ranks,
            "; heads are exchanged for tokens, and there are ", schedule.sizes.key_heads,
            " heads of keys: a ring or a mesh takes more ranks than that");
}

}  // namespace imbrex
