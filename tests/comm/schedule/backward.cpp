// Backward transfers: replayed in float64 with separate memory per rank, every gradient reaches its owner and equals
// that of single-device attention. Bytes match the hops of the ring.
#include "comm/schedule/replay.hpp"

#include <imbrex/comm/schedule/backward.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

using namespace imbrex_test;

namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

struct rank_memory {
    token_matrix q, k, v, gradient, log_sums, deltas;
    gradients sums;

    explicit rank_memory(const replayed_inputs& in)
        : q(in.tokens, in.sizes.heads, in.sizes.head_dim, unknown),
          k(in.tokens, in.sizes.kv_heads, in.sizes.head_dim, unknown),
          v(in.tokens, in.sizes.kv_heads, in.sizes.head_dim_v, unknown),
          gradient(in.tokens, in.sizes.heads, in.sizes.head_dim_v, unknown),
          log_sums(in.tokens, in.sizes.heads, 1, unknown),
          deltas(in.tokens, in.sizes.heads, 1, unknown),
          sums(in) {}
};

template <class Schedule>
void test_backward(const Schedule& schedule, unsigned seed) {
    const replayed_inputs in(schedule.tokens, schedule.sizes, schedule.mask, seed);
    const result_rows result = attention_in_one(in);
    std::vector<rank_memory> memories(schedule.ranks, rank_memory(in));
    for (int token = 0; token < in.tokens; ++token) {
        rank_memory& home = memories[schedule.location_of(token).rank];
        const auto keep = [&](token_matrix& to, const token_matrix& from) {
            std::copy_n(from.at(token, 0), from.heads * from.columns, to.at(token, 0));
        };
        keep(home.q, in.q);
        keep(home.k, in.k);
        keep(home.v, in.v);
        keep(home.gradient, in.gradient);
        keep(home.log_sums, result.log_sums);
        for (int head = 0; head < in.sizes.heads; ++head)
            *home.deltas.at(token, head) = delta_of(in, result, token, head);
    }

    const auto take = [&](const transfer& one) {
        const token_ranges tokens = schedule.tokens_of(one.chunk);
        const rank_memory before = memories[one.from];
        return std::function<void()>([&memories, one, tokens, before] {
            rank_memory& to = memories[one.to];
            const auto put = [&](token_matrix& into, const token_matrix& from, bool added) {
                for (int row = 0; row < one.rows; ++row) {
                    for (int head = one.first_head; head < one.first_head + one.heads; ++head) {
                        for (int c = 0; c < from.columns; ++c) {
                            double& value = into.at(tokens.position(row), head)[c];
                            value = from.at(tokens.position(row), head)[c] + (added ? value : 0);
                        }
                    }
                }
            };
            if (one.what == payload::q_do_lse_delta) {
                put(to.q, before.q, false);
                put(to.gradient, before.gradient, false);
                put(to.log_sums, before.log_sums, false);
                put(to.deltas, before.deltas, false);
            } else if (one.what == payload::kv) {
                put(to.k, before.k, false);
                put(to.v, before.v, false);
            } else if (one.what == payload::dq) {
                put(to.sums.q, before.sums.q, true);
            } else {
                REQUIRE(one.what == payload::dk_dv);
                // The owner adds the returned gradient to its own.
                const bool added = one.to != one.chunk;
                put(to.sums.k, before.sums.k, added);
                put(to.sums.v, before.sums.v, added);
            }
        });
    };
    drive(
        schedule.ranks, backward_steps(schedule),
        [&](int rank, int step) { return backward_sends(schedule, rank, step); },
        [&](int rank, int step) { return backward_receives(schedule, rank, step); }, take,
        [&](int rank, int step) {
            rank_memory& own = memories[rank];
            for_each_score(schedule.block(rank, step), [&](int query, int key, int head) {
                attend_key_backward(own.sums, own.q, own.k, own.v, own.gradient, *own.log_sums.at(query, head),
                                    *own.deltas.at(query, head), query, key, head);
            });
        });

    gradients found(in);
    for (int token = 0; token < in.tokens; ++token) {
        const gradients& home = memories[schedule.location_of(token).rank].sums;
        const auto keep = [&](token_matrix& to, const token_matrix& from) {
            std::copy_n(from.at(token, 0), from.heads * from.columns, to.at(token, 0));
        };
        keep(found.q, home.q);
        keep(found.k, home.k);
        keep(found.v, home.v);
    }
    const gradients wanted = gradients_in_one(in, result);
    check_close(found.q, wanted.q);
    check_close(found.k, wanted.k);
    check_close(found.v, wanted.v);
}

constexpr attention_sizes small_sizes{.heads = 2, .kv_heads = 1, .head_dim = 3, .head_dim_v = 2};

}  // namespace

TEST_CASE("rings and meshes compute exact gradients") {
    std::mt19937 generator(11);
    const window_mask masks[] = {as_window(full_mask{}), as_window(causal_mask{}), {6, 0}, {4, 3}};
    for (int ranks = 1; ranks <= 8; ++ranks) {
        for (int a = 1; a <= ranks; ++a) {
            if (ranks % a != 0) continue;
            for (const token_placement placement :
                 {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
                for (const window_mask& mask : masks) {
                    const int tokens = static_cast<int>(generator() % 30);
                    INFO(name_of(placement), ", ", ranks, " ranks, ", a, " q_chunks, ", tokens, " tokens, window ",
                         mask.left, " ", mask.right);
                    ring_schedule schedule{.tokens = tokens,
                                           .ranks = ranks,
                                           .q_chunks = a,
                                           .placement = placement,
                                           .mask = mask,
                                           .sizes = small_sizes};
                    test_backward(schedule, generator());
                    schedule.rotation = kv_rotation::while_visible;
                    test_backward(schedule, generator());
                }
            }
        }
    }
}

TEST_CASE("Ulysses computes exact gradients") {
    attention_sizes sizes = small_sizes;
    sizes.kv_heads = 4;
    sizes.heads = 8;
    for (int ranks = 1; ranks <= 4; ++ranks) {
        INFO(ranks, " ranks");
        test_backward(
            ulysses_schedule{.tokens = 13, .ranks = ranks, .placement = token_placement::zigzag, .sizes = sizes}, 3);
    }
}

TEST_CASE("Ulysses sends the bytes of the closed form in the backward pass") {
    const attention_sizes sizes{.heads = 32, .kv_heads = 8, .head_dim = 128, .head_dim_v = 128};
    const ulysses_schedule schedule{.tokens = 64, .ranks = 4, .sizes = sizes};
    for (int rank = 0; rank < 4; ++rank) {
        std::int64_t sent = 0;
        for (int step = 0; step < backward_steps(schedule); ++step) {
            for (const transfer& one : backward_sends(schedule, rank, step)) sent += one.bytes;
        }
        // (3 + 4 g) s (P - 1) / P, and two fp32 numbers per row and head
        CHECK(sent == (4 * 16 * 32 * 128 * 2 + 16 * 32 * 2 * 4) * 3 / 4);
    }
}

TEST_CASE("dK and dV have the same transfer time as K and V") {
    const ring_schedule mesh{.tokens = 36, .ranks = 6, .q_chunks = 2};
    std::map<payload, std::vector<std::pair<int, int>>> when;
    for (int step = 0; step < backward_steps(mesh); ++step) {
        for (const transfer& one : backward_sends(mesh, 3, step))
            when[one.what].emplace_back(one.post_step, one.needed_step);
    }
    using times = std::vector<std::pair<int, int>>;
    CHECK(backward_steps(mesh) == 7);
    CHECK(when[payload::kv] == times{{0, 2}, {2, 4}});
    CHECK(when[payload::dk_dv] == times{{2, 4}, {4, 6}, {6, 7}});
    CHECK(when[payload::q_do_lse_delta] == times{{0, 1}});
    CHECK(when[payload::dq] == times{{5, 7}});
}

TEST_CASE("bytes of the backward pass") {
    // 2 heads with 3 + 2 columns of 2 bytes, 4 bytes for partial sums; 4 tokens per rank.
    const auto sent = [](const ring_schedule& schedule, int rank) {
        std::int64_t sum = 0;
        for (int step = 0; step < backward_steps(schedule); ++step) {
            for (const transfer& one : backward_sends(schedule, rank, step)) sum += one.bytes;
        }
        return sum;
    };
    for (int ranks = 1; ranks <= 64; ++ranks) {
        for (int a = 1; a <= ranks; ++a) {
            if (ranks % a != 0) continue;
            const int b = ranks / a;
            const ring_schedule schedule{.tokens = 4 * ranks, .ranks = ranks, .q_chunks = a, .sizes = small_sizes};
            // K and V take one hop less than dK and dV, which return to their owner.
            const std::int64_t keys = (b - 1) * 4 * 5 * 2, key_gradients = (b > 1 ? b : 0) * 4 * 5 * 4;
            const std::int64_t queries = (a - 1) * 4 * 2 * (5 * 2 + 8), query_gradients = (a - 1) * 4 * 2 * 3 * 4;
            for (int rank = 0; rank < ranks; ++rank) {
                REQUIRE(sent(schedule, rank) == keys + key_gradients + queries + query_gradients);
            }
        }
    }
}
