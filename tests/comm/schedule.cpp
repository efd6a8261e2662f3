// Every schedule computes attention: replayed in float64 with separate memory per rank, against single-device
// attention.
#include "comm/schedule/replay.hpp"

#include <imbrex/comm/schedule.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <vector>

using namespace imbrex_test;

namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

struct rank_memory {
    token_matrix q, k, v;
    result_rows rows;

    rank_memory(const replayed_inputs& in, const token_ranges& own)
        : q(in.tokens, in.sizes.heads, in.sizes.head_dim, unknown),
          k(in.tokens, in.sizes.kv_heads, in.sizes.head_dim, unknown),
          v(in.tokens, in.sizes.kv_heads, in.sizes.head_dim_v, unknown),
          rows(in) {
        for (int row = 0; row < own.count(); ++row) {
            const int token = own.position(row);
            const auto keep = [&](token_matrix& to, const token_matrix& from) {
                std::copy_n(from.at(token, 0), from.heads * from.columns, to.at(token, 0));
            };
            keep(q, in.q);
            keep(k, in.k);
            keep(v, in.v);
        }
    }
};

template <class Schedule>
void test_schedule(const Schedule& schedule, unsigned seed) {
    require_schedule(schedule);
    const replayed_inputs in(schedule.tokens, schedule.sizes, schedule.mask, seed);
    std::vector<rank_memory> memories;
    for (int rank = 0; rank < schedule.ranks; ++rank) memories.emplace_back(in, schedule.tokens_of(rank));

    const auto take = [&](const transfer& one) {
        const token_ranges tokens = schedule.tokens_of(one.chunk);
        REQUIRE(tokens.count() == one.rows);
        const auto for_each_row = [one, tokens](auto visit) {
            for (int row = 0; row < one.rows; ++row) {
                for (int head = one.first_head; head < one.first_head + one.heads; ++head) {
                    visit(tokens.position(row), head);
                }
            }
        };
        const rank_memory before = memories[one.from];
        return std::function<void()>([&memories, one, for_each_row, before] {
            rank_memory& to = memories[one.to];
            const auto copy = [&](token_matrix rank_memory::*which) {
                for_each_row([&](int token, int head) {
                    std::copy_n((before.*which).at(token, head), (before.*which).columns, (to.*which).at(token, head));
                });
            };
            if (one.what == payload::q) {
                copy(&rank_memory::q);
            } else if (one.what == payload::kv) {
                copy(&rank_memory::k);
                copy(&rank_memory::v);
            } else {
                for_each_row([&](int token, int head) {
                    to.rows.merge(token, head, before.rows.out.at(token, head), *before.rows.log_sums.at(token, head));
                });
            }
        });
    };
    drive(
        schedule.ranks, schedule.steps(), [&](int rank, int step) { return schedule.sends(rank, step); },
        [&](int rank, int step) { return schedule.receives(rank, step); }, take,
        [&](int rank, int step) {
            rank_memory& own = memories[rank];
            for_each_score(schedule.block(rank, step), [&](int query, int key, int head) {
                attend_key(own.rows, own.q, own.k, own.v, query, key, head);
            });
        });

    result_rows found(in);
    for (int token = 0; token < in.tokens; ++token) {
        const result_rows& home = memories[schedule.location_of(token).rank].rows;
        std::copy_n(home.out.at(token, 0), in.sizes.heads * in.sizes.head_dim_v, found.out.at(token, 0));
    }
    check_close(found.out, attention_in_one(in).out);
}

constexpr attention_sizes small_sizes{.heads = 2, .kv_heads = 1, .head_dim = 3, .head_dim_v = 2};

}  // namespace

TEST_CASE("rings and meshes compute exact attention") {
    std::mt19937 generator(7);
    const window_mask masks[] = {as_window(full_mask{}), as_window(causal_mask{}), {6, 0}, {4, 3}};
    for (int ranks = 1; ranks <= 12; ++ranks) {
        for (int a = 1; a <= ranks; ++a) {
            if (ranks % a != 0) continue;
            for (const token_placement placement :
                 {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
                for (const kv_rotation rotation : {kv_rotation::full_ring, kv_rotation::while_visible}) {
                    const int tokens = static_cast<int>(generator() % 40);
                    const window_mask mask = masks[generator() % 4];
                    INFO(name_of(placement), ", ", ranks, " ranks, ", a, " q_chunks, ", tokens, " tokens, window ",
                         mask.left, " ", mask.right);
                    test_schedule(ring_schedule{.tokens = tokens,
                                                .ranks = ranks,
                                                .q_chunks = a,
                                                .placement = placement,
                                                .mask = mask,
                                                .rotation = rotation,
                                                .sizes = small_sizes},
                                  generator());
                }
            }
        }
    }
}

TEST_CASE("Ulysses computes exact attention") {
    attention_sizes sizes = small_sizes;
    sizes.kv_heads = 5;
    sizes.heads = 10;
    for (int ranks = 1; ranks <= 5; ++ranks) {
        for (const int tokens : {0, 1, 4, 23}) {
            for (const token_placement placement :
                 {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
                INFO(name_of(placement), ", ", ranks, " ranks, ", tokens, " tokens");
                test_schedule(
                    ulysses_schedule{.tokens = tokens, .ranks = ranks, .placement = placement, .sizes = sizes}, 1);
            }
        }
    }
}
