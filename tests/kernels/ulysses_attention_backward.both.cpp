// The backward pass of Ulysses attention: after the forward pass against gradients of whole sequences in double, bit by
// bit against attention_backward on one rank, removed waits, schedules, and error messages.
#include "kernels/ring_trial.hpp"
#include "kernels/ulysses_trial.hpp"
#include "kernels/whole_gradients.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/attention_backward.hpp>
#include <imbrex/kernels/ulysses_attention.hpp>
#include <imbrex/kernels/ulysses_attention_backward.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;
using namespace std::chrono_literals;

namespace {

constexpr attention_head_dim_set head_dim_64{64};
template <class Score = score_mod::identity>
using forward = ulysses_attention<bf16, head_dim_64, Score>;
template <class Score = score_mod::identity, bool Deterministic = false>
using backward = ulysses_attention_backward<bf16, head_dim_64, Score, Deterministic>;

// All that a rank has.
struct rank_tensors {
    buffer<bf16> q, k, v, out, d_out, d_q, d_k, d_v;
    buffer<float> lse2, delta;
    world_memory workspace, backward_workspace;

    rank_tensors(world where, const ulysses_schedule& one, int rank, std::size_t workspace_bytes)
        : q(where, elements(one, rank, one.sizes.heads, one.sizes.head_dim)),
          k(where, elements(one, rank, one.sizes.kv_heads, one.sizes.head_dim)),
          v(where, elements(one, rank, one.sizes.kv_heads, one.sizes.head_dim_v)),
          out(where, elements(one, rank, one.sizes.heads, one.sizes.head_dim_v), bf16(NAN)),
          d_out(where, out.values.size()),
          d_q(where, q.values.size(), bf16(NAN)),
          d_k(where, k.values.size(), bf16(NAN)),
          d_v(where, v.values.size(), bf16(NAN)),
          lse2(where, elements(one, rank, one.sizes.heads, 1), NAN),
          delta(where, lse2.values.size(), NAN),
          workspace(where, forward<>::workspace_bytes(one, rank)),
          backward_workspace(where, workspace_bytes) {}

    ulysses_problem<bf16> forward_problem() {
        return {.q = q.upload(),
                .k = k.upload(),
                .v = v.upload(),
                .out = out.upload(),
                .lse2 = lse2.upload(),
                .workspace = workspace.at()};
    }
    ulysses_backward_problem<bf16> problem() {
        return {.q = q.upload(),
                .k = k.upload(),
                .v = v.upload(),
                .out = out.upload(),
                .lse2 = lse2.upload(),
                .d_out = d_out.upload(),
                .d_q = d_q.upload(),
                .d_k = d_k.upload(),
                .d_v = d_v.upload(),
                .workspace = backward_workspace.at()};
    }
    static std::size_t elements(const ulysses_schedule& one, int rank, int heads, int columns) {
        return std::size_t(one.sizes.batches) * one.tokens_of(rank).count() * heads * columns;
    }
};

struct ulysses_case {
    ulysses_schedule schedule;
    std::vector<whole_gradients> whole;  // one per batch entry

    explicit ulysses_case(const ulysses_schedule& given, unsigned seed = 1, double cap = 0) : schedule(given) {
        attention_sizes& sizes = schedule.sizes;
        if (sizes.head_dim == 0) sizes.head_dim = sizes.head_dim_v = 64;
        std::mt19937 random(seed);
        for (int i = 0; i < sizes.batches; ++i) {
            whole.push_back(make_whole_gradients(whole_sizes(schedule), schedule.mask, random, cap));
        }
    }

    // Calls visit(index in the rank's tensor, index in the whole one, batch entry) for each row of each head.
    template <class Visit>
    void each_head_row(int rank, int heads, const Visit& visit) const {
        each_row(schedule, rank, [&](int row, int number, int token) {
            for (int head = 0; head < heads; ++head) {
                visit(std::size_t(row) * heads + head, whole[number].sizes.query_at(head, token, 1), number);
            }
        });
    }
    // From the whole tensors.
    void fill_rows(int rank, buffer<bf16>& to, int heads, int columns, tensor_values whole_gradients::*from) const {
        each_head_row(rank, heads, [&](std::size_t mine, std::size_t row, int number) {
            for (int i = 0; i < columns; ++i) {
                to.values[mine * columns + i] = bf16(float((whole[number].*from)[row * columns + i]));
            }
        });
    }
    // O, LSE and delta of the reference, for tests without a forward pass.
    void fill_results(int rank, rank_tensors& mine) const {
        const int heads = schedule.sizes.heads, columns = schedule.sizes.head_dim_v;
        each_row(schedule, rank, [&](int row, int number, int token) {
            for (int head = 0; head < heads; ++head) {
                const whole_gradients& from = whole[number];
                const std::size_t there = from.sizes.query_at(head, token, 1);
                const std::size_t at = row_value_at(schedule, rank, head, row);
                double delta = 0;
                for (int i = 0; i < columns; ++i) {
                    const double out = from.forward.out[there * columns + i];
                    mine.out.values[(std::size_t(row) * heads + head) * columns + i] = bf16(float(out));
                    delta += out * from.d_out[there * columns + i];
                }
                mine.lse2.values[at] = float(from.forward.lse[there] * 1.4426950408889634);
                mine.delta.values[at] = float(delta);
            }
        });
    }
    using all_tensors = std::vector<std::unique_ptr<rank_tensors>>;
    template <class Backward = backward<>>
    all_tensors tensors(world where, bool with_results) const {
        const attention_sizes& n = schedule.sizes;
        all_tensors made;
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            auto mine =
                std::make_unique<rank_tensors>(where, schedule, rank, Backward::workspace_bytes(schedule, rank));
            fill_rows(rank, mine->q, n.heads, n.head_dim, &whole_gradients::q);
            fill_rows(rank, mine->k, n.kv_heads, n.head_dim, &whole_gradients::k);
            fill_rows(rank, mine->v, n.kv_heads, n.head_dim_v, &whole_gradients::v);
            fill_rows(rank, mine->d_out, n.heads, n.head_dim_v, &whole_gradients::d_out);
            if (with_results) fill_results(rank, *mine);
            made.push_back(std::move(mine));
        }
        return made;
    }

    // The largest error, relative to the largest gradient.
    double error_of(const all_tensors& tensors, buffer<bf16> rank_tensors::*found, int heads, int columns,
                    tensor_values reference_gradients::*gradient) const {
        double worst = 0, most = 0.01;
        for (const whole_gradients& one : whole) {
            for (const double x : one.gradients.*gradient) most = std::fmax(most, std::abs(x));
        }
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            buffer<bf16>& mine = *tensors[rank].*found;
            mine.download();
            each_head_row(rank, heads, [&](std::size_t at, std::size_t row, int number) {
                for (int i = 0; i < columns; ++i) {
                    const double right = (whole[number].gradients.*gradient)[row * columns + i];
                    const double error = std::abs(float(mine.values[at * columns + i]) - right);
                    worst = std::isnan(error) ? INFINITY : std::fmax(worst, error / most);
                }
            });
        }
        return worst;
    }
    void compare(const all_tensors& tensors) const {
        const attention_sizes& n = schedule.sizes;
        CHECK(error_of(tensors, &rank_tensors::d_q, n.heads, n.head_dim, &reference_gradients::d_q) < 0.01);
        CHECK(error_of(tensors, &rank_tensors::d_k, n.kv_heads, n.head_dim, &reference_gradients::d_k) < 0.01);
        CHECK(error_of(tensors, &rank_tensors::d_v, n.kv_heads, n.head_dim_v, &reference_gradients::d_v) < 0.01);
    }
};

// The forward pass, then the backward pass with its results.
template <class Forward = forward<>, class Backward = backward<>, class Score = score_mod::identity>
void run_case(world where, const ulysses_case& one, std::uint64_t seed = 0, const Score& score = {}) {
    CAPTURE(name_of(where));
    auto tensors = one.template tensors<Backward>(where, false);
    loopback_group group(where, one.schedule.ranks, {.timeout = 60s, .seed = seed});
    run_ranks(group, [&](loopback& comm) {
        rank_tensors& mine = *tensors[comm.rank()];
        Backward::require_same_on_all_ranks(comm, one.schedule);
        const world_stream stream(where);
        const auto p = mine.problem();
        Forward::launch(comm, one.schedule, mine.forward_problem(), score, stream.get());
        Backward::launch(comm, one.schedule, p, score, stream.get());
        comm.synchronise(stream.get());
    });
    one.compare(tensors);
}

ulysses_schedule schedule_of(int tokens, int ranks, token_placement placement, int heads, int kv_heads) {
    return {.tokens = tokens,
            .ranks = ranks,
            .placement = placement,
            .sizes = {.heads = heads, .kv_heads = kv_heads, .head_dim = 64, .head_dim_v = 64}};
}

// The gradients of all tokens, by one launch of attention_backward with the LSE and delta of the reference.
std::unique_ptr<rank_tensors> run_attention_backward(world where, ulysses_case one) {
    using single = attention_backward<bf16, attention_backward_options{.head_dims = head_dim_64}, window_mask>;
    one.schedule.ranks = 1;
    auto all = std::move(one.tensors(where, true)[0]);
    const attention_sizes& n = one.schedule.sizes;
    const auto view = [&](auto* pointer, int heads) {
        return batch_sequence_head(pointer, n.batches, one.schedule.tokens, heads, 64);
    };
    const auto p = all->problem();
    single::problem made{};
    made.q = view(p.q, n.heads);
    made.k = view(p.k, n.kv_heads);
    made.v = view(p.v, n.kv_heads);
    made.d_out = view(p.d_out, n.heads);
    made.lse2 = batch_head_rows(all->lse2.upload(), n.heads, one.schedule.tokens);
    made.delta = batch_head_rows(all->delta.upload(), n.heads, one.schedule.tokens);
    made.d_q = view(p.d_q, n.heads);
    made.d_k = view(p.d_k, n.kv_heads);
    made.d_v = view(p.d_v, n.kv_heads);
    made.workspace_bytes = single::workspace_bytes(made);
    const world_memory workspace(where, made.workspace_bytes);
    made.workspace = workspace.at();
    const world_stream stream(where);
    single::launch(where, made, one.schedule.mask, {}, stream.get());
    stream.wait();
    all->d_k.download();
    all->d_v.download();
    return all;
}

}  // namespace

TEST_CASE("backward: Ulysses attention matches attention on one rank") {
    for (const world where : worlds()) {
        std::mt19937 random(5);
        const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
#if defined(IMBREX_FEW_SHAPES)
        const int most = where == world::host_checked ? 3 : 4;
#else
        const int most = 8;
#endif
        for (int ranks = 1; ranks <= most; ++ranks) {
            for (const token_placement placement : placements) {
                const int kv_heads = ranks + from(0, 2);
                const window_mask mask =
                    from(0, 2) > 0 ? as_window(causal_mask{}) : window_mask{from(0, 30), from(0, 9)};
                ulysses_schedule schedule = schedule_of(from(0, 90), ranks, placement, kv_heads * from(1, 2), kv_heads);
                schedule.mask = mask;
                schedule.sizes.batches = from(1, 2);
                schedule.sizes.head_dim = 16 * from(2, 4);
                schedule.sizes.head_dim_v = 16 * from(2, 4);
                CAPTURE(ranks);
                CAPTURE(name_of(placement));
                CAPTURE(kv_heads);
                run_case(where, ulysses_case(schedule, ranks), ranks);
            }
        }
#if !defined(IMBREX_FEW_SHAPES)
        const ulysses_schedule schedule = schedule_of(70, 2, token_placement::zigzag, 4, 2);
        using softcap = score_mod::softcap;
        run_case<forward<softcap>, backward<softcap>>(where, ulysses_case(schedule, 3, 2.0), 0, softcap{2.0f});
        run_case<forward<>, backward<score_mod::identity, true>>(where, ulysses_case(schedule, 4));
#endif
    }
}

TEST_CASE("backward: Ulysses attention has the bits of attention_backward on one rank") {
    const ulysses_case one(schedule_of(150, 3, token_placement::striped, 8, 4));
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const auto whole = run_attention_backward(where, one);
        const auto parts = one.tensors(where, true);
        loopback_group group(where, 3, {.timeout = 60s});
        run_ranks(group, [&](loopback& comm) {
            rank_tensors& mine = *parts[comm.rank()];
            auto p = mine.problem();
            p.out = nullptr;
            p.delta = mine.delta.upload();
            const world_stream stream(where);
            backward<>::launch(comm, one.schedule, p, {}, stream.get());
            comm.synchronise(stream.get());
        });
        // dQ is summed over the blocks of keys in any order.
        one.compare(parts);
        for (int rank = 0; rank < 3; ++rank) {
            int different = 0;
            each_row(one.schedule, rank, [&](int row, int, int token) {
                for (int i = 0; i < 4 * 64; ++i) {
                    const std::size_t here = row * 4 * 64 + i, there = token * 4 * 64 + i;
                    different += float(parts[rank]->d_k.values[here]) != float(whole->d_k.values[there]);
                    different += float(parts[rank]->d_v.values[here]) != float(whole->d_v.values[there]);
                }
            });
            CHECK(different == 0);
        }
    }
}

#if !defined(__CUDACC__)
namespace {

// Whether removing one wait of rank 1 shows under some seed: as a hazard, or in the gradients.
bool shows(const ulysses_case& one, send_recv_request forgotten) {
    for (std::uint64_t seed = 0; seed < (forgotten < 0 ? 3 : 10); ++seed) {
        auto tensors = one.tensors(world::host_checked, true);
        // Without some waits other ranks wait forever.
        loopback_group group(world::host_checked, one.schedule.ranks,
                             {.timeout = forgotten < 0 ? 20000ms : 300ms, .seed = seed});
        for (const std::exception_ptr& outcome : run_ranks_catching(group, [&](loopback& comm) {
                 forgetful careless(comm, comm.rank() == 1 ? forgotten : -1);
                 backward<>::launch(careless, one.schedule, tensors[comm.rank()]->problem());
                 comm.synchronise();
             })) {
            if (outcome) return true;
        }
        for (const auto& rank : tensors) {
            for (const auto* gradient : {&rank->d_q.values, &rank->d_k.values, &rank->d_v.values}) {
                if (std::any_of(gradient->begin(), gradient->end(), [](bf16 x) { return std::isnan(float(x)); })) {
                    return true;
                }
            }
        }
    }
    return false;
}

}  // namespace

TEST_CASE("backward: the checked world detects a removed wait of Ulysses attention") {
    const ulysses_case one(schedule_of(24, 3, token_placement::zigzag, 4, 4));
    CHECK(!shows(one, -1));
    for (send_recv_request forgotten = 0; forgotten < 2; ++forgotten) {
        CAPTURE(forgotten);
        CHECK(shows(one, forgotten));
    }
}

TEST_CASE("backward: check of Ulysses attention") {
    const ulysses_case one(schedule_of(40, 2, token_placement::striped, 4, 2));
    auto tensors = one.tensors(world::host_checked, true);
    std::vector<ulysses_backward_problem<bf16>> problems;
    for (const auto& mine : tensors) problems.push_back(mine->problem());
    CHECK(text_of(backward<>::check(problems, {.schedules = schedules_to_run(1000) / 50}, one.schedule)) == "");
    problems[1].workspace = nullptr;
    CHECK(error_message_of([&] { backward<>::check(problems, {}, one.schedule); }).find("workspace: ") == 0);
}
#endif

TEST_CASE("backward: invalid arguments of Ulysses attention") {
    for (const world where : worlds()) {
        loopback_group group(where, 1);
        loopback comm(group, 0);
        const ulysses_case one(schedule_of(20, 1, token_placement::contiguous, 2, 1));
        auto tensors = one.tensors(where, true);
        const auto right = tensors[0]->problem();
        const auto refused = [&](const auto& change) {
            auto p = right;
            ulysses_schedule schedule = one.schedule;
            change(p, schedule);
            return error_message_of([&] { backward<>::launch(comm, schedule, p); });
        };
        CHECK(refused([](auto& p, auto&) { p.d_k = nullptr; }) == "d_k: null; 1 x 20 x 1 x 64 elements are needed");
        CHECK(refused([](auto& p, auto&) { p.lse2 = nullptr; }) == "lse2: null; 1 x 20 x 2 x 1 elements are needed");
        CHECK(refused([](auto& p, auto&) { p.out = nullptr; }) == "out: null; 1 x 20 x 2 x 64 elements are needed");
        CHECK(refused([](auto& p, auto&) { p.workspace = nullptr; }).find("workspace: ") == 0);
        CHECK(refused([](auto&, auto& schedule) { schedule.ranks = 2; }).find("ranks: 2; Ulysses allows") == 0);
        CHECK(refused([](auto&, auto& schedule) { schedule.sizes.element_bytes = 4; }) ==
              "sizes.element_bytes: 4; the elements of this attention have 2");
        CHECK(refused([](auto&, auto& schedule) {
                  schedule.sizes.head_dim = 80;
              }).find("q.extents[3], v.extents[3]: 80") == 0);
        CHECK(refused([](auto&, auto&) {}) == "no error");
        comm.synchronise();
    }
}
