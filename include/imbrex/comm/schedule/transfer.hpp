// What goes from one rank to another, when, and how many bytes that is. Time is counted in steps, in each of which a rank attends to
// one block at most. Both sides start a transfer at the beginning of step `post`, beside the work of that step; it has to be
// there when step `need` begins. So the loop of a rank is
//
//     for each step:   wait for what it needs   start its sends and receives   attend
//
// and a rank waits for its sends before it writes again what they read.
#pragma once

#include <imbrex/core/error.hpp>

#include <cstdint>
#include <vector>

namespace imbrex {

enum class payload {
    queries,              // Q
    keys_values,          // K and V
    results,              // O of some of the keys, and what it takes to merge it with that of others
    outputs,              // O of all keys
    query_states,         // backward: Q, dO, and each row's logarithm and delta
    query_gradients,      // backward: dQ of some of the keys, to be added up
    key_value_gradients,  // backward: dK and dV of some of the queries, to be added up
};

constexpr bool by_key_heads(payload what) {
    return what == payload::keys_values || what == payload::key_value_gradients;
}

// What an attention is made of, as far as bytes are concerned. Results of some of the keys, and gradients, are fp32 on their way
// unless they are said to be something else.
struct attention_sizes {
    int heads = 1;
    int key_heads = 1;
    int depth = 0;
    int value_depth = 0;
    int element_bytes = 2;
    int result_element_bytes = 4;
    int row_number_bytes = 4;  // a number for a row, such as the logarithm of its sum
    int batches = 1;

    // Of one token of one head, of keys or of queries.
    constexpr std::int64_t bytes_of(payload what) const {
        const std::int64_t both = std::int64_t{depth} + value_depth;
        switch (what) {
            case payload::queries:
                return std::int64_t{depth} * element_bytes;
            case payload::keys_values:
                return both * element_bytes;
            case payload::results:
                return std::int64_t{value_depth} * result_element_bytes + row_number_bytes;
            case payload::outputs:
                return std::int64_t{value_depth} * element_bytes;
            case payload::query_states:
                return both * element_bytes + 2 * std::int64_t{row_number_bytes};
            case payload::query_gradients:
                return std::int64_t{depth} * result_element_bytes;
            case payload::key_value_gradients:
                break;
        }
        return both * result_element_bytes;
    }
    constexpr int heads_of(payload what) const { return by_key_heads(what) ? key_heads : heads; }
};

struct transfer {
    int from = 0;
    int to = 0;
    payload what = payload::keys_values;
    int chunk = 0;  // the rank whose tokens these are
    int rows = 0;   // tokens; never 0
    int first_head = 0;
    int heads = 0;
    int post = 0;
    int need = 0;
    std::int64_t bytes = 0;

    bool operator==(const transfer&) const = default;
};

inline void require_sizes(const attention_sizes& sizes) {
    require(sizes.heads >= 1, "sizes.heads: ", sizes.heads, "; there is one at least");
    require(sizes.key_heads >= 1 && sizes.heads % sizes.key_heads == 0, "sizes.key_heads: ", sizes.key_heads,
            "; a divisor of the ", sizes.heads, " heads of queries is needed");
    const auto at_least = [](int least, int value, const char* name) {
        require(value >= least, "sizes.", name, ": ", value, "; it must be ", least, " or more");
    };
    at_least(0, sizes.depth, "depth");
    at_least(0, sizes.value_depth, "value_depth");
    at_least(0, sizes.batches, "batches");
    at_least(0, sizes.row_number_bytes, "row_number_bytes");
    at_least(1, sizes.element_bytes, "element_bytes");
    at_least(1, sizes.result_element_bytes, "result_element_bytes");
}

namespace detail {

// All heads, if none are named.
constexpr transfer transfer_of(const attention_sizes& sizes, payload what, int from, int to, int chunk, int rows,
                               int post, int need, int first_head = 0, int heads = -1) {
    transfer made{};
    made.from = from;
    made.to = to;
    made.what = what;
    made.chunk = chunk;
    made.rows = rows;
    made.first_head = first_head;
    made.heads = heads < 0 ? sizes.heads_of(what) : heads;
    made.post = post;
    made.need = need;
    made.bytes = sizes.bytes_of(what) * made.heads * rows * sizes.batches;
    return made;
}

// A transfer of nothing does not take place.
inline void add_transfer(std::vector<transfer>& all, const transfer& one) {
    if (one.rows > 0 && one.heads > 0) all.push_back(one);
}

}  // namespace detail

}  // namespace imbrex
