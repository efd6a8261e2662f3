// Schedules and machines that the tests of the cost model share.
#pragma once

#include <imbrex/comm/cost_model.hpp>
#include <imbrex/comm/schedule.hpp>

#include <limits>

namespace imbrex_test {

using namespace imbrex;

inline constexpr double infinite = std::numeric_limits<double>::infinity();

// A score is 4 FLOP, a token's query 1 byte, its key and value 2, its results 8, its output 1.
inline constexpr attention_sizes tiny_sizes{.head_dim = 1, .head_dim_v = 1, .element_bytes = 1};

// A score a second. Two tokens' keys take 5 s everywhere.
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
