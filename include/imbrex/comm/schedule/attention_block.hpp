// The block of scores that a rank computes in one step, Q of one rank against K and V of one rank, and the
// attention_schedule concept, which ring_schedule and ulysses_schedule model.
#pragma once

#include <imbrex/comm/schedule/score_rectangles.hpp>
#include <imbrex/comm/schedule/token_ranges.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <concepts>
#include <cstdint>
#include <vector>

namespace imbrex {

struct attention_block {
    int q_chunk = -1;  // the ranks that own these queries and keys; -1 in an idle step
    int kv_chunk = -1;
    int q_hop = 0;  // ranks travelled; 0 is the rank's own
    int kv_hop = 0;
    token_ranges q_tokens = {};
    token_ranges k_tokens = {};
    int first_head = 0;
    int heads = 0;
    score_rectangles rectangles = {};

    // Unmasked scores of one head, and of all heads.
    constexpr std::int64_t unmasked_scores() const { return rectangles.unmasked_scores(); }
    constexpr std::int64_t work() const { return unmasked_scores() * heads; }
    constexpr block_kind kind() const {
        const std::int64_t seen = unmasked_scores();
        if (seen == 0) return block_kind::skipped;
        return seen == std::int64_t{q_tokens.count()} * k_tokens.count() ? block_kind::full : block_kind::partial;
    }
};

template <class Schedule>
concept attention_schedule = requires(const Schedule& schedule, int rank, int step) {
    { schedule.ranks } -> std::convertible_to<int>;
    { schedule.sizes } -> std::convertible_to<attention_sizes>;
    { schedule.steps() } -> std::same_as<int>;
    { schedule.tokens_of(rank) } -> std::same_as<token_ranges>;
    { schedule.block(rank, step) } -> std::same_as<attention_block>;
    { schedule.sends(rank, step) } -> std::same_as<std::vector<transfer>>;
    { schedule.receives(rank, step) } -> std::same_as<std::vector<transfer>>;
    require_schedule(schedule);
};

namespace detail {

inline void require_division(int tokens, int ranks, const window_mask& mask) {
    require(ranks >= 1 && ranks <= max_tokens / 2, "ranks: ", ranks, "; 1 to ", max_tokens / 2, " are allowed");
    require(tokens >= 0 && tokens <= max_tokens, "tokens: ", tokens, "; 0 to ", max_tokens, " are allowed");
    require(mask.left >= 0 && mask.left <= unbounded, "mask.left: ", mask.left, "; 0 to ", unbounded,
            " is allowed; the maximum means unbounded");
    require(mask.right >= 0 && mask.right <= unbounded, "mask.right: ", mask.right, "; 0 to ", unbounded,
            " is allowed; the maximum means unbounded");
}

}  // namespace detail

}  // namespace imbrex
