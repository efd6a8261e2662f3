// Replays a schedule in float64: every rank has its own memory, NaN where it has received nothing, and receives exactly
// the transfers of the schedule. Transfers read their source alternately when they are posted and when they are needed:
// a schedule must allow both. Also here: the single-device reference.
#pragma once

#include "transfers.hpp"

#include <doctest/doctest.h>

#include <imbrex/comm/schedule.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace imbrex_test {

using namespace imbrex;

// Indexed by token, head and column.
struct token_matrix {
    int heads = 0;
    int columns = 0;
    std::vector<double> values = {};

    token_matrix(int tokens, int heads_of_it, int columns_of_it, double value)
        : heads(heads_of_it),
          columns(columns_of_it),
          values(static_cast<std::size_t>(tokens) * heads * columns, value) {}
    double* at(int token, int head) {
        return values.data() + (static_cast<std::size_t>(token) * heads + head) * columns;
    }
    const double* at(int token, int head) const {
        return values.data() + (static_cast<std::size_t>(token) * heads + head) * columns;
    }
};

struct replayed_inputs {
    int tokens;
    attention_sizes sizes;
    window_mask mask;
    token_matrix q, k, v, gradient;  // dO

    replayed_inputs(int count, const attention_sizes& all_sizes, const window_mask& seen, unsigned seed)
        : tokens(count),
          sizes(all_sizes),
          mask(seen),
          q(count, sizes.heads, sizes.head_dim, 0),
          k(count, sizes.kv_heads, sizes.head_dim, 0),
          v(count, sizes.kv_heads, sizes.head_dim_v, 0),
          gradient(count, sizes.heads, sizes.head_dim_v, 0) {
        std::mt19937 generator(seed);
        std::uniform_real_distribution<double> number(-2, 2);
        for (token_matrix* one : {&q, &k, &v, &gradient}) {
            for (double& value : one->values) value = number(generator);
        }
    }
    bool seen(int query, int key) const {
        return (mask.left == unbounded || key >= query - mask.left) &&
               (mask.right == unbounded || key <= query + mask.right);
    }
};

inline double dot(const double* a, const double* b, int count) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

// O and LSE over some of the keys.
struct result_rows {
    token_matrix out;
    token_matrix log_sums;

    explicit result_rows(const replayed_inputs& in)
        : out(in.tokens, in.sizes.heads, in.sizes.head_dim_v, 0),
          log_sums(in.tokens, in.sizes.heads, 1, -std::numeric_limits<double>::infinity()) {}

    // Merges another partial result of the same row.
    void merge(int token, int head, const double* other, double other_log_sum) {
        double& log_sum = *log_sums.at(token, head);
        const double top = std::max(log_sum, other_log_sum);
        if (top == -std::numeric_limits<double>::infinity()) return;
        const double sum = top + std::log1p(std::exp(-std::abs(log_sum - other_log_sum)));
        const double weight = std::exp(other_log_sum - sum);
        for (int c = 0; c < out.columns; ++c) {
            double& value = out.at(token, head)[c];
            value = std::exp(log_sum - sum) * value + weight * other[c];
        }
        log_sum = sum;
    }
};

struct gradients {
    token_matrix q, k, v;
    explicit gradients(const replayed_inputs& in)
        : q(in.tokens, in.sizes.heads, in.sizes.head_dim, 0),
          k(in.tokens, in.sizes.kv_heads, in.sizes.head_dim, 0),
          v(in.tokens, in.sizes.kv_heads, in.sizes.head_dim_v, 0) {}
};

// Merges one score of the forward pass into its row.
inline void attend_key(result_rows& rows, const token_matrix& q, const token_matrix& k, const token_matrix& v,
                       int query, int key, int head) {
    const int kv_head = head / (q.heads / k.heads);
    rows.merge(query, head, v.at(key, kv_head), dot(q.at(query, head), k.at(key, kv_head), q.columns));
}

// One score of the backward pass.
inline void attend_key_backward(gradients& sums, const token_matrix& q, const token_matrix& k, const token_matrix& v,
                                const token_matrix& gradient, double log_sum, double delta, int query, int key,
                                int head) {
    const int kv_head = head / (q.heads / k.heads);
    const double* const out_gradient = gradient.at(query, head);
    const double weight = std::exp(dot(q.at(query, head), k.at(key, kv_head), q.columns) - log_sum);
    const double score = weight * (dot(out_gradient, v.at(key, kv_head), v.columns) - delta);
    for (int c = 0; c < v.columns; ++c) sums.v.at(key, kv_head)[c] += weight * out_gradient[c];
    for (int c = 0; c < q.columns; ++c) {
        sums.q.at(query, head)[c] += score * k.at(key, kv_head)[c];
        sums.k.at(key, kv_head)[c] += score * q.at(query, head)[c];
    }
}

// Single-device reference, masked by positions.
inline result_rows attention_in_one(const replayed_inputs& in) {
    result_rows made(in);
    for (int head = 0; head < in.sizes.heads; ++head) {
        for (int i = 0; i < in.tokens; ++i) {
            for (int j = 0; j < in.tokens; ++j) {
                if (in.seen(i, j)) attend_key(made, in.q, in.k, in.v, i, j, head);
            }
        }
    }
    return made;
}

inline double delta_of(const replayed_inputs& in, const result_rows& result, int token, int head) {
    return dot(in.gradient.at(token, head), result.out.at(token, head), in.sizes.head_dim_v);
}

inline gradients gradients_in_one(const replayed_inputs& in, const result_rows& result) {
    gradients made(in);
    for (int head = 0; head < in.sizes.heads; ++head) {
        for (int i = 0; i < in.tokens; ++i) {
            for (int j = 0; j < in.tokens; ++j) {
                if (!in.seen(i, j)) continue;
                attend_key_backward(made, in.q, in.k, in.v, in.gradient, *result.log_sums.at(i, head),
                                    delta_of(in, result, i, head), i, j, head);
            }
        }
    }
    return made;
}

inline void check_close(const token_matrix& found, const token_matrix& wanted) {
    REQUIRE(found.values.size() == wanted.values.size());
    int wrong = 0;
    for (std::size_t i = 0; i < found.values.size(); ++i) {
        wrong += !(std::abs(found.values[i] - wanted.values[i]) < 1e-10);  // NaN counts as wrong
    }
    CHECK(wrong == 0);
}

// Calls visit(query, key, head) for each score of a block, through its rectangles and masks as a kernel does.
template <class Visit>
void for_each_score(const attention_block& block, Visit visit) {
    for (const score_rectangle& rectangle : block.rectangles) {
        const window_mask mask = rectangle.mask();
        const attention_extents sequence{0, 0, rectangle.seqlen_q, rectangle.seqlen_k};
        for (int i = 0; i < rectangle.seqlen_q; ++i) {
            for (int j = 0; j < rectangle.seqlen_k; ++j) {
                if (!mask.keep(sequence, i, j)) continue;
                for (int head = block.first_head; head < block.first_head + block.heads; ++head) {
                    visit(block.q_tokens.position(rectangle.q_start + i),
                          block.k_tokens.position(rectangle.k_start + j), head);
                }
            }
        }
    }
}

// Drives all ranks through a schedule, step by step. `sends(rank, step)` and `receives` are its transfers; `take(one)`
// reads the payload and returns a function that delivers it; `attend(rank, step)` computes a step.
template <class Transfers, class OtherTransfers, class Take, class Attend>
void drive(int ranks, int steps, Transfers sends, OtherTransfers receives, Take take, Attend attend) {
    struct letter {
        transfer what;
        decltype(take(transfer{})) contents;
        bool taken;
    };
    std::vector<letter> under_way;
    int count = 0;
    for (int step = 0; step <= steps; ++step) {
        for (letter& one : under_way) {
            if (one.what.needed_step != step) continue;
            (one.taken ? one.contents : take(one.what))();
        }
        std::erase_if(under_way, [&](const letter& one) { return one.what.needed_step == step; });
        if (step == steps) break;
        const auto sent = transfers_of_all(ranks, [&](int rank) { return sends(rank, step); });
        REQUIRE(sent == transfers_of_all(ranks, [&](int rank) { return receives(rank, step); }));
        for (const transfer& one : sent) {
            REQUIRE(one.from != one.to);
            REQUIRE(one.post_step == step);
            REQUIRE(one.needed_step > step);
            const bool now = ++count % 2 == 0;
            under_way.push_back({one, now ? take(one) : decltype(take(transfer{})){}, now});
        }
        for (int rank = 0; rank < ranks; ++rank) attend(rank, step);
    }
    CHECK(under_way.empty());
}

}  // namespace imbrex_test
