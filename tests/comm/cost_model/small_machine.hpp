// Schedules and machines that the tests of the cost model share.
#pragma once

#include <imbrex/comm/cost_model.hpp>
#include <imbrex/comm/schedule.hpp>

#include <limits>

namespace imbrex_test {

using namespace imbrex;

inline constexpr double infinite = std::numeric_limits<double>::infinity();

// A score is 4 FLOP, a token's query 1 byte, its key and value 2, its results 8, its output 1.
inline constexpr attention_sizes tiny_sizes{.depth = 1, .value_depth = 1, .element_bytes = 1};

// A score a second. Two tokens' keys take 5 s everywhere.
inline constexpr cluster_machine slow_machine{.device = {.attention_rate = 4},
                                              .ranks_per_node = 1,
                                              .within_node = {.bandwidth = 1, .latency = 1},
                                              .between_nodes = {.bandwidth = 1, .latency = 1}};

inline sequence_schedule zigzag_of(int tokens, int ranks, const attention_sizes& sizes, int query_chunks = 1) {
    return {.tokens = tokens,
            .ranks = ranks,
            .query_chunks = query_chunks,
            .placement = token_placement::zigzag,
            .sizes = sizes};
}

constexpr attention_sizes sizes_of(int heads, int key_heads) {
    return {.heads = heads, .key_heads = key_heads, .depth = 128, .value_depth = 128};
}

}  // namespace imbrex_test
