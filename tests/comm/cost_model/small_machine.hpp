// Schedules and machines shared by the tests of the cost model.
#pragma once

#include <imbrex/comm/cost_model.hpp>
#include <imbrex/comm/schedule.hpp>

#include <limits>

namespace imbrex_test {

using namespace imbrex;

inline constexpr double infinite = std::numeric_limits<double>::infinity();

// Per score 4 FLOP; per token 1 byte of Q, 2 of K and V, 8 of partial results, 1 of output.
inline constexpr attention_sizes tiny_sizes{.head_dim = 1, .head_dim_v = 1, .element_bytes = 1};

// One score per second. K and V of two tokens take 5 s on every link.
inline constexpr cluster_machine slow_machine{.device = {.attention_rate = 4},
                                              .ranks_per_node = 1,
                                              .within_node = {.bandwidth = 1, .latency = 1},
                                              .between_nodes = {.bandwidth = 1, .latency = 1}};

inline ring_schedule zigzag_of(int tokens, int ranks, const attention_sizes& sizes, int q_chunks = 1) {
    return {
        .tokens = tokens, .ranks = ranks, .q_chunks = q_chunks, .placement = token_placement::zigzag, .sizes = sizes};
}

constexpr attention_sizes sizes_of(int heads, int kv_heads) {
    return {.heads = heads, .kv_heads = kv_heads, .head_dim = 128, .head_dim_v = 128};
}

}  // namespace imbrex_test
