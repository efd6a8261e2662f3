// A transfer of a schedule: payload, sender, receiver, bytes and the steps in which it is posted and needed. Time is
// counted in steps; a rank attends at most one block per step. Both sides post a transfer at the start of step
// `post_step`, overlapped with the work of that step. It must have arrived when step `needed_step` starts. The loop of
// a rank is
//
//     for each step:   wait for arrivals needed now   post sends and receives   attend
//
// and a rank waits for its sends before it overwrites their buffers.
#pragma once

#include <imbrex/core/error.hpp>

#include <cstdint>
#include <vector>

namespace imbrex {

enum class payload {
    q,               // Q
    kv,              // K and V
    partial_o,       // O over some of the keys, and the LSE to merge it
    o,               // final O
    q_do_lse_delta,  // backward: Q, dO, LSE and delta
    dq,              // backward: dQ over some of the keys, to be summed
    dk_dv,           // backward: dK and dV over some of the queries, to be summed
};

constexpr bool is_per_kv_head(payload what) {
    return what == payload::kv || what == payload::dk_dv;
}

// Sizes of an attention that determine bytes and work. Partial results and gradients are sent in fp32 by default.
struct attention_sizes {
    int heads = 1;
    int kv_heads = 1;
    int head_dim = 0;
    int head_dim_v = 0;
    int element_bytes = 2;
    int partial_element_bytes = 4;
    int row_stat_bytes = 4;  // one number per row, such as the LSE
    int batches = 1;

    // Of one token and one head (q head or kv head).
    constexpr std::int64_t bytes_of(payload what) const {
        const std::int64_t both = std::int64_t{head_dim} + head_dim_v;
        switch (what) {
            case payload::q:
                return std::int64_t{head_dim} * element_bytes;
            case payload::kv:
                return both * element_bytes;
            case payload::partial_o:
                return std::int64_t{head_dim_v} * partial_element_bytes + row_stat_bytes;
            case payload::o:
                return std::int64_t{head_dim_v} * element_bytes;
            case payload::q_do_lse_delta:
                return both * element_bytes + 2 * std::int64_t{row_stat_bytes};
            case payload::dq:
                return std::int64_t{head_dim} * partial_element_bytes;
            case payload::dk_dv:
                break;
        }
        return both * partial_element_bytes;
    }
    constexpr int heads_of(payload what) const { return is_per_kv_head(what) ? kv_heads : heads; }
};

struct transfer {
    int from = 0;
    int to = 0;
    payload what = payload::kv;
    int chunk = 0;  // the rank that owns these tokens
    int rows = 0;   // tokens; never 0
    int first_head = 0;
    int heads = 0;
    int post_step = 0;
    int needed_step = 0;
    std::int64_t bytes = 0;

    bool operator==(const transfer&) const = default;
};

inline void require_sizes(const attention_sizes& sizes) {
    require(sizes.heads >= 1, "sizes.heads: ", sizes.heads, "; must be at least 1");
    require(sizes.kv_heads >= 1 && sizes.heads % sizes.kv_heads == 0, "sizes.kv_heads: ", sizes.kv_heads,
            "; must divide the ", sizes.heads, " query heads");
    const auto at_least = [](int least, int value, const char* name) {
        require(value >= least, "sizes.", name, ": ", value, "; it must be ", least, " or more");
    };
    at_least(0, sizes.head_dim, "head_dim");
    at_least(0, sizes.head_dim_v, "head_dim_v");
    at_least(0, sizes.batches, "batches");
    at_least(0, sizes.row_stat_bytes, "row_stat_bytes");
    at_least(1, sizes.element_bytes, "element_bytes");
    at_least(1, sizes.partial_element_bytes, "partial_element_bytes");
}

namespace detail {

// All heads by default.
constexpr transfer transfer_of(const attention_sizes& sizes, payload what, int from, int to, int chunk, int rows,
                               int post_step, int needed_step, int first_head = 0, int heads = -1) {
    transfer made{};
    made.from = from;
    made.to = to;
    made.what = what;
    made.chunk = chunk;
    made.rows = rows;
    made.first_head = first_head;
    made.heads = heads < 0 ? sizes.heads_of(what) : heads;
    made.post_step = post_step;
    made.needed_step = needed_step;
    made.bytes = sizes.bytes_of(what) * made.heads * rows * sizes.batches;
    return made;
}

// Empty transfers are dropped.
inline void add_transfer(std::vector<transfer>& all, const transfer& one) {
    if (one.rows > 0 && one.heads > 0) all.push_back(one);
}

}  // namespace detail

}  // namespace imbrex
