// Bytes and load balance of every schedule, for up to 64 ranks, against closed forms:
//
//     P ranks, n tokens per rank, s bytes of Q per rank, g = kv_heads / heads; bytes sent per rank, and load balance
//
//     ring, zigzag, striped     2 g (P - 1) s                     P / (2 P - 1); 1; (P n + 1) / (P n + P)
//     mesh of a and b chunks    2 (a - 1) s + 2 g (b - 1) s       as its placement
//     Ulysses                   (2 + 2 g) s (P - 1) / P           1
#include <imbrex/comm/schedule.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

using namespace imbrex;

namespace {

// 12 heads, 4 kv_heads, partial results in the type of Q, as the formulas assume.
constexpr attention_sizes even_sizes{
    .heads = 12, .kv_heads = 4, .head_dim = 64, .head_dim_v = 64, .partial_element_bytes = 2, .row_stat_bytes = 0};

constexpr int rows = 6;  // per rank
constexpr std::int64_t query_bytes = std::int64_t{rows} * 12 * 64 * 2;

void check_all_send(const schedule_load& load, std::int64_t bytes) {
    bool same = true;
    for (int rank = 0; rank < load.ranks; ++rank) {
        same = same && load.of_rank(rank).sent == bytes && load.of_rank(rank).received == bytes;
    }
    CHECK(same);
    CHECK(load.max_bytes_sent() == bytes);
}

}  // namespace

TEST_CASE("rings and meshes send the bytes of the closed form") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        for (int a = 1; a <= ranks; ++a) {
            if (ranks % a != 0) continue;
            for (const token_placement placement :
                 {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
                INFO(name_of(placement), ", ", ranks, " ranks, ", a, " q_chunks");
                const ring_schedule schedule{
                    .tokens = rows * ranks, .ranks = ranks, .q_chunks = a, .placement = placement, .sizes = even_sizes};
                const int b = ranks / a;
                check_all_send(load_of(schedule), 2 * (a - 1) * query_bytes + 2 * (b - 1) * query_bytes / 3);
            }
        }
    }
}

TEST_CASE("Ulysses sends the bytes of the closed form") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        INFO(ranks, " ranks");
        attention_sizes sizes = even_sizes;
        sizes.kv_heads = 2 * ranks;
        sizes.heads = 6 * ranks;
        const ulysses_schedule schedule{.tokens = rows * ranks, .ranks = ranks, .sizes = sizes};
        const std::int64_t all_bytes = std::int64_t{rows} * sizes.heads * 64 * 2;  // s
        const schedule_load load = load_of(schedule);
        check_all_send(load, (2 * all_bytes + 2 * all_bytes / 3) / ranks * (ranks - 1));
        CHECK(load.load_balance() == 1);
        CHECK(load.load_balance_per_step() == 1);
    }
}

TEST_CASE("load balance under a causal mask matches the closed form") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        INFO(ranks, " ranks");
        const std::int64_t p = ranks, n = rows, tokens = n * p;
        const auto load = [&](token_placement placement, int a = 1) {
            return load_of(ring_schedule{
                .tokens = static_cast<int>(tokens), .ranks = ranks, .q_chunks = a, .placement = placement});
        };
        // Contiguous: P / (2 P - 1) except for half a diagonal, n (n + 1) / 2 instead of n^2 / 2.
        const schedule_load ring = load(token_placement::contiguous);
        CHECK(ring.total_work() == tokens * (tokens + 1) / 2);
        CHECK(ring.max_work() == n * (n + 1) / 2 + (p - 1) * n * n);
        CHECK(ring.critical_path_work() == ring.max_work());
        CHECK((2 * ring.total_work() - tokens) * (2 * p - 1) == p * p * (2 * ring.max_work() - n));

        const schedule_load zigzag = load(token_placement::zigzag);
        CHECK(zigzag.total_work() == p * zigzag.critical_path_work());
        CHECK(zigzag.load_balance_per_step() == 1);
        CHECK(zigzag.at(0, 0).work == n * (n + 1) / 2);
        for (int step = 1; step < ranks; ++step) CHECK(zigzag.at(ranks - 1, step).work == n * n / 2);

        const schedule_load striped = load(token_placement::striped);
        CHECK(striped.total_work() * (p * n + p) == p * striped.critical_path_work() * (p * n + 1));
        CHECK(striped.load_balance_per_step() == doctest::Approx(double(p * n + 1) / double(p * n + p)));

        // In a mesh every rank has one diagonal block; with zigzag the others are equal.
        for (int a = 2; a <= ranks; ++a) {
            if (ranks % a != 0) continue;
            const schedule_load mesh = load(token_placement::zigzag, a);
            CHECK(mesh.total_work() == p * mesh.max_work());
            CHECK(mesh.load_balance() == 1);
            CHECK(load(token_placement::striped, a).load_balance() >= double(p * n + 1) / double(p * n + p));
        }
    }
}

TEST_CASE("load balance of long sequences") {
    const auto balance = [](token_placement placement, int tokens) {
        return load_of(ring_schedule{.tokens = tokens, .ranks = 8, .placement = placement}).load_balance_per_step();
    };
    CHECK(balance(token_placement::contiguous, 1 << 20) == doctest::Approx(8.0 / 15).epsilon(1e-5));
    CHECK(balance(token_placement::striped, 1 << 20) > 0.99999);
    // Lengths that ranks do not divide cost almost nothing.
    CHECK(balance(token_placement::zigzag, (1 << 20) + 13) > 0.9999);
}

TEST_CASE("the figures in docs/ring_attention.md are current") {
    // Tenths of a MiB, of the rank that sends the most.
    const auto sent = [](const auto& schedule) {
        return static_cast<int>(load_of(schedule).max_bytes_sent() * 10 / (1 << 20));
    };
    constexpr attention_sizes sizes{.heads = 32, .kv_heads = 8, .head_dim = 128, .head_dim_v = 128};
    ring_schedule schedule{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::zigzag, .sizes = sizes};
    CHECK(sent(schedule) == 35840);
    schedule.q_chunks = 2;
    CHECK(sent(schedule) == 46240);
    schedule.ranks = 64;
    CHECK(sent(schedule) == 23700);
    schedule.q_chunks = 4;
    CHECK(sent(schedule) == 21180);
    CHECK(best_q_chunks(64, sizes) == 4);
    CHECK(best_q_chunks(8, sizes) == 1);
    CHECK(sent(ulysses_schedule{.tokens = 1 << 20, .ranks = 8, .sizes = sizes}) == 22400);
    const ring_schedule window{
        .tokens = 1 << 20, .ranks = 8, .mask = {4096, 0}, .rotation = kv_rotation::while_visible, .sizes = sizes};
    CHECK(sent(window) == 5120);
    CHECK(load_of(window).load_balance() == doctest::Approx(0.998).epsilon(1e-3));
}

TEST_CASE("work counts heads and the batch; full masks are balanced") {
    ring_schedule schedule{.tokens = 24, .ranks = 4, .mask = as_window(full_mask{}), .sizes = even_sizes};
    schedule.sizes.batches = 3;
    const schedule_load load = load_of(schedule);
    CHECK(load.total_work() == 24 * 24 * 12 * 3);
    CHECK(load.load_balance_per_step() == 1);
    CHECK(load.of_rank(1).sent == 3 * 3 * rows * 4 * 128 * 2);
}

TEST_CASE("an empty sequence has no bytes, no work and balance 1") {
    const schedule_load load = load_of(ring_schedule{.tokens = 0, .ranks = 5, .sizes = even_sizes});
    CHECK(load.total_work() == 0);
    CHECK(load.max_bytes_sent() == 0);
    CHECK(load.load_balance() == 1);
}

TEST_CASE("kv_rotation::while_visible stops at the last rank that sees the keys") {
    ring_schedule schedule{.tokens = 8 * rows, .ranks = 8, .rotation = kv_rotation::while_visible, .sizes = even_sizes};
    const std::int64_t hop = 2 * query_bytes / 3;
    // Causal: keys of rank j travel to the last rank and do not wrap around.
    schedule_load load = load_of(schedule);
    for (int rank = 0; rank < 8; ++rank) CHECK(load.of_rank(rank).sent == (rank < 7 ? (rank + 1) * hop : 0));
    // A window of one rank's tokens reaches into the previous rank only.
    schedule.mask = {rows, 0};
    load = load_of(schedule);
    for (int rank = 0; rank < 8; ++rank) CHECK(load.of_rank(rank).sent == (rank < 7 ? hop : 0));
    schedule.mask = {0, 0};
    CHECK(load_of(schedule).max_bytes_sent() == 0);
    // Balanced placements have visible keys on every rank.
    schedule.mask = as_window(causal_mask{});
    schedule.placement = token_placement::zigzag;
    check_all_send(load_of(schedule), 7 * hop);
}

TEST_CASE("best_q_chunks minimises the bytes sent") {
    for (int ranks = 1; ranks <= 512; ++ranks) {
        const int best = best_q_chunks(ranks, even_sizes);
        REQUIRE(ranks % best == 0);
        const auto bytes = [&](int a) { return 2.0 * (a - 1) + 2.0 / 3 * (ranks / a - 1); };
        for (int a = 1; a <= ranks; ++a) {
            if (ranks % a == 0) CHECK(bytes(best) <= bytes(a) + 1e-9);
        }
    }
    // sqrt(g P) if that is a divisor.
    constexpr attention_sizes all_heads{
        .heads = 8, .kv_heads = 8, .head_dim = 128, .head_dim_v = 128, .partial_element_bytes = 2, .row_stat_bytes = 0};
    static_assert(best_q_chunks(64, all_heads) == 8);
    static_assert(best_q_chunks(256, all_heads) == 16);
    constexpr attention_sizes quarter{
        .heads = 8, .kv_heads = 2, .head_dim = 128, .head_dim_v = 128, .partial_element_bytes = 2, .row_stat_bytes = 0};
    static_assert(best_q_chunks(64, quarter) == 4);
}
