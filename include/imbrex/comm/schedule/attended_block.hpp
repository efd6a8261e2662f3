// What a rank works on in one step: queries that it has with keys that it has, their own or others'. What a schedule is, and what it
// may be made of.
#pragma once

#include <imbrex/comm/schedule/block.hpp>
#include <imbrex/comm/schedule/token_runs.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <concepts>
#include <cstdint>
#include <vector>

namespace imbrex {

struct attended_block {
    int query_chunk = -1;  // the ranks whose queries and keys these are; none in a step without work
    int key_chunk = -1;
    int query_hop = 0;  // over how many ranks they have come: 0 are the rank's own
    int key_hop = 0;
    token_runs queries = {};
    token_runs keys = {};
    int first_head = 0;
    int heads = 0;
    block_parts parts = {};

    // Scores of one head, and of all.
    constexpr std::int64_t entries() const { return parts.entries(); }
    constexpr std::int64_t work() const { return entries() * heads; }
    constexpr block_kind kind() const {
        const std::int64_t seen = entries();
        if (seen == 0) return block_kind::skipped;
        return seen == std::int64_t{queries.count()} * keys.count() ? block_kind::full : block_kind::partial;
    }
};

template <class Schedule>
concept attention_schedule = requires(const Schedule& schedule, int rank, int step) {
    { schedule.ranks } -> std::convertible_to<int>;
    { schedule.sizes } -> std::convertible_to<attention_sizes>;
    { schedule.steps() } -> std::same_as<int>;
    { schedule.tokens_of(rank) } -> std::same_as<token_runs>;
    { schedule.block(rank, step) } -> std::same_as<attended_block>;
    { schedule.sends(rank, step) } -> std::same_as<std::vector<transfer>>;
    { schedule.receives(rank, step) } -> std::same_as<std::vector<transfer>>;
    require_schedule(schedule);
};

namespace detail {

inline void require_division(int tokens, int ranks, const window_mask& mask) {
    require(ranks >= 1 && ranks <= most_tokens / 2, "ranks: ", ranks, "; 1 to ", most_tokens / 2, " are allowed");
    require(tokens >= 0 && tokens <= most_tokens, "tokens: ", tokens, "; 0 to ", most_tokens, " are allowed");
    require(mask.left >= 0 && mask.left <= unbounded, "mask.left: ", mask.left, "; 0 to ", unbounded,
            " is allowed, which means without an end");
    require(mask.right >= 0 && mask.right <= unbounded, "mask.right: ", mask.right, "; 0 to ", unbounded,
            " is allowed, which means without an end");
}

}  // namespace detail

}  // namespace imbrex
