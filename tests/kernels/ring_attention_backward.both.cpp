// The backward pass of ring attention against gradients of whole sequences in double: rings of one to eight ranks, meshes,
// windows, several sequences, softcap, sinks; schedules, removed waits and error messages.
#include "kernels/ring_trial.hpp"
#include "kernels/whole_attention.hpp"
#include "kernels/whole_gradients.hpp"
#include "schedules.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/ring_attention_backward.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;
using namespace std::chrono_literals;

namespace {

constexpr int head_dim = whole_head_dim;
constexpr attention_head_dim_set head_dim_64{64};
template <class Score = score_mod::identity>
using backward = ring_attention_backward<bf16, head_dim_64, Score>;

// All that a rank has of some sequences, in its own order of rows.
struct rank_tensors {
    buffer<bf16> q, k, v, d_out, rounded_d_q, rounded_d_k, rounded_d_v;
    buffer<float> out, lse2, d_q, d_k, d_v, sinks, d_sinks;
    world_memory workspace;

    rank_tensors(world where, const ring_plan& plan, const std::vector<float>& given_sinks, std::size_t workspace_bytes)
        : q(where, elements(plan, plan.sizes().heads)),
          k(where, elements(plan, plan.sizes().kv_heads)),
          v(where, k.values.size()),
          d_out(where, q.values.size()),
          rounded_d_q(where, q.values.size(), bf16(NAN)),
          rounded_d_k(where, k.values.size(), bf16(NAN)),
          rounded_d_v(where, k.values.size(), bf16(NAN)),
          out(where, q.values.size()),
          lse2(where, plan.rows_of(plan.rank()) * plan.sizes().heads),
          d_q(where, q.values.size(), NAN),
          d_k(where, k.values.size(), NAN),
          d_v(where, k.values.size(), NAN),
          sinks(where, plan.sizes().heads),
          d_sinks(where, plan.sizes().heads, NAN),
          workspace(where, workspace_bytes) {
        std::copy(given_sinks.begin(), given_sinks.end(), sinks.values.begin());
    }
    ring_backward_problem<bf16> problem(bool with_sinks = false) {
        ring_backward_problem<bf16> p{.q = q.upload(),
                                      .k = k.upload(),
                                      .v = v.upload(),
                                      .out = out.upload(),
                                      .lse2 = lse2.upload(),
                                      .d_out = d_out.upload(),
                                      .d_q = d_q.upload(),
                                      .d_k = d_k.upload(),
                                      .d_v = d_v.upload(),
                                      .workspace = workspace.at(),
                                      .rounded_d_q = rounded_d_q.upload(),
                                      .rounded_d_k = rounded_d_k.upload(),
                                      .rounded_d_v = rounded_d_v.upload()};
        if (with_sinks) {
            p.sinks = sinks.upload();
            p.d_sinks = d_sinks.upload();
        }
        return p;
    }
    static std::size_t elements(const ring_plan& plan, int heads) {
        return std::size_t(plan.rows_of(plan.rank())) * heads * head_dim;
    }
};

struct ring_case {
    std::vector<ring_schedule> sequences;
    std::vector<whole_gradients> whole;  // one per batch entry
    double cap;
    std::vector<float> sinks;

    explicit ring_case(std::vector<ring_schedule> all, unsigned seed = 1, double cap = 0, std::vector<float> sinks = {})
        : sequences(std::move(all)), cap(cap), sinks(std::move(sinks)) {
        std::mt19937 random(seed);
        for (ring_schedule& one : sequences) {
            one.sizes.head_dim = one.sizes.head_dim_v = head_dim;
            const reference_sizes sizes = whole_sizes(one, tensor_values(this->sinks.begin(), this->sinks.end()));
            for (int member = 0; member < one.sizes.batches; ++member) {
                whole.push_back(make_whole_gradients(sizes, one.mask, random, cap));
            }
        }
    }

    // Calls visit(index in the rank's tensor, index in the whole one, sequence) for each row of each head.
    template <class Visit>
    void each_head_row(const ring_plan& plan, int heads, const Visit& visit) const {
        each_row(plan, plan.rank(), [&](std::int64_t row, int number, int token) {
            for (int head = 0; head < heads; ++head) {
                visit(std::size_t(row * heads + head), whole[number].sizes.query_at(head, token, 1), number, head, row);
            }
        });
    }
    template <class T>
    void fill_rows(const ring_plan& plan, buffer<T>& to, int heads, tensor_values whole_gradients::*from) const {
        each_head_row(plan, heads, [&](std::size_t mine, std::size_t row, int number, int, std::int64_t) {
            for (int i = 0; i < head_dim; ++i) {
                to.values[mine * head_dim + i] = T(float((whole[number].*from)[row * head_dim + i]));
            }
        });
    }
    using all_tensors = std::vector<std::unique_ptr<rank_tensors>>;
    template <class Backward = backward<>>
    all_tensors tensors(world where) const {
        all_tensors made;
        for (int rank = 0; rank < sequences.front().ranks; ++rank) {
            const ring_plan plan(sequences, rank, ring_pass::backward);
            auto mine = std::make_unique<rank_tensors>(where, plan, sinks, Backward::workspace_bytes(plan));
            const int heads = plan.sizes().heads, kv_heads = plan.sizes().kv_heads;
            fill_rows(plan, mine->q, heads, &whole_gradients::q);
            fill_rows(plan, mine->d_out, heads, &whole_gradients::d_out);
            fill_rows(plan, mine->k, kv_heads, &whole_gradients::k);
            fill_rows(plan, mine->v, kv_heads, &whole_gradients::v);
            each_head_row(plan, heads,
                          [&](std::size_t at, std::size_t row, int number, int head, std::int64_t mine_row) {
                              const reference_forward& forward = whole[number].forward;
                              for (int i = 0; i < head_dim; ++i) {
                                  mine->out.values[at * head_dim + i] = float(forward.out[row * head_dim + i]);
                              }
                              mine->lse2.values[head * plan.rows_of(rank) + mine_row] =
                                  float(forward.lse[row] * 1.4426950408889634);
                          });
            made.push_back(std::move(mine));
        }
        return made;
    }

    void compare(const all_tensors& tensors) const {
        double worst_rounded = 0;
        tensor_values d_sinks(sinks.size()), wanted_sinks(sinks.size());
        for (const whole_gradients& one : whole) {
            for (std::size_t i = 0; i < sinks.size(); ++i) wanted_sinks[i] += one.gradients.d_sinks[i];
        }
        for (const auto& mine : tensors) {
            const ring_plan plan(sequences, int(&mine - tensors.data()), ring_pass::backward);
            const auto error_of = [&](buffer<float>& found, int heads, tensor_values reference_gradients::*gradient) {
                found.download();
                double worst = 0, most = 0.01;
                for (const whole_gradients& one : whole) {
                    for (const double x : one.gradients.*gradient) most = std::fmax(most, std::abs(x));
                }
                each_head_row(plan, heads, [&](std::size_t at, std::size_t row, int number, int, std::int64_t) {
                    for (int i = 0; i < head_dim; ++i) {
                        const double x = found.values[at * head_dim + i];
                        const double error = std::abs(x - (whole[number].gradients.*gradient)[row * head_dim + i]);
                        worst = std::isnan(error) ? INFINITY : std::fmax(worst, error / most);
                    }
                });
                return worst;
            };
            CHECK(error_of(mine->d_q, plan.sizes().heads, &reference_gradients::d_q) < 0.01);
            CHECK(error_of(mine->d_k, plan.sizes().kv_heads, &reference_gradients::d_k) < 0.01);
            CHECK(error_of(mine->d_v, plan.sizes().kv_heads, &reference_gradients::d_v) < 0.01);
            mine->d_sinks.download();
            const auto compare_rounded = [&](buffer<bf16>& rounded, const buffer<float>& exact) {
                rounded.download();
                for (std::size_t i = 0; i < exact.values.size(); ++i) {
                    const double x = exact.values[i], error = std::abs(float(rounded.values[i]) - x);
                    worst_rounded =
                        std::isnan(error) ? INFINITY : std::fmax(worst_rounded, error / (std::abs(x) + 1e-30));
                }
            };
            compare_rounded(mine->rounded_d_q, mine->d_q);
            compare_rounded(mine->rounded_d_k, mine->d_k);
            compare_rounded(mine->rounded_d_v, mine->d_v);
            for (std::size_t i = 0; i < sinks.size(); ++i) d_sinks[i] += mine->d_sinks.values[i];
        }
        CHECK(worst_rounded <= 1.0 / 256);
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            CHECK(d_sinks[i] == doctest::Approx(wanted_sinks[i]).epsilon(0.01).scale(0.1));
        }
    }
};

template <class Backward = backward<>, class Score = score_mod::identity>
void run_case(world where, const ring_case& one, std::uint64_t seed = 0, const Score& score = {}) {
    CAPTURE(name_of(where));
    auto tensors = one.template tensors<Backward>(where);
    loopback_group group(where, one.sequences.front().ranks, {.timeout = 60s, .seed = seed});
    run_ranks(group, [&](loopback& comm) {
        const ring_plan plan = make_ring_plan(comm, one.sequences, ring_pass::backward);
        const world_stream stream(where);
        Backward::launch(comm, plan, tensors[comm.rank()]->problem(!one.sinks.empty()), score, stream.get());
        comm.synchronise(stream.get());
    });
    one.compare(tensors);
}

}  // namespace

TEST_CASE("backward: rings of one to eight ranks match attention on one rank") {
    for (const world where : worlds()) {
#if defined(IMBREX_FEW_SHAPES)
        const int most = where == world::host_checked ? 3 : 8;
#else
        const int most = 8;
#endif
        for (int ranks = 1; ranks <= most; ++ranks) {
            CAPTURE(ranks);
            run_case(where, ring_case({schedule_of(9 * ranks + 5, ranks, token_placement::zigzag)}, ranks), ranks);
        }
        for (const token_placement placement : {token_placement::contiguous, token_placement::striped}) {
            CAPTURE(name_of(placement));
            run_case(where, ring_case({schedule_of(83, 3, placement)}), 1);
        }
    }
}

TEST_CASE("backward: meshes match attention on one rank") {
    for (const world where : worlds()) {
        for (const auto& [ranks, chunks] : {std::pair{2, 2}, {4, 2}, {6, 3}}) {
            CAPTURE(ranks);
            CAPTURE(chunks);
            run_case(where, ring_case({schedule_of(13 * ranks + 3, ranks, token_placement::zigzag, chunks)}), chunks);
        }
    }
}

TEST_CASE("backward: windows whose keys stop early, sequences of different lengths, softcap, sinks, a fixed order") {
    for (const world where : worlds()) {
        ring_schedule window = schedule_of(90, 4, token_placement::contiguous, 1, {20, 3});
        window.rotation = kv_rotation::while_visible;
        run_case(where, ring_case({window}));
        std::vector<ring_schedule> all;
        for (const auto& [tokens, batches] : {std::pair{40, 1}, {3, 2}, {0, 1}, {57, 2}}) {
            all.push_back(schedule_of(tokens, 4, token_placement::zigzag, 2, as_window(causal_mask{}), 4, 2));
            all.back().sizes.batches = batches;
        }
        run_case(where, ring_case(all), 2);
        const std::vector<ring_schedule> few{schedule_of(50, 3, token_placement::zigzag)};
        run_case(where, ring_case(few, 4, 0, {1.5f, -0.5f}));
#if !defined(IMBREX_FEW_SHAPES)
        run_case<backward<score_mod::softcap>>(where, ring_case(few, 3, 2.0), 0, score_mod::softcap{2.0f});
        run_case<ring_attention_backward<bf16, head_dim_64, score_mod::identity, true>>(where, ring_case(few));
#endif
    }
}

#if !defined(__CUDACC__)
namespace {

// Messages of one step that are needed in the same step are one request.
int requests_of(const ring_plan& plan) {
    int count = 0;
    for (const ring_step& step : plan.steps()) {
        std::set<int> needed;
        for (const auto* messages : {&step.sends, &step.receives}) {
            for (const ring_message& one : *messages) needed.insert(one.needed_step);
        }
        count += static_cast<int>(needed.size());
    }
    return count;
}

// Whether removing one wait of rank 1 shows under some seed: as a hazard, or in the gradients.
bool shows(const ring_case& one, send_recv_request forgotten) {
    for (std::uint64_t seed = 0; seed < (forgotten < 0 ? 3 : 10); ++seed) {
        auto tensors = one.tensors(world::host_checked);
        const int ranks = one.sequences.front().ranks;
        // Without some waits other ranks wait forever.
        loopback_group group(world::host_checked, ranks, {.timeout = forgotten < 0 ? 20000ms : 300ms, .seed = seed});
        for (const std::exception_ptr& outcome : run_ranks_catching(group, [&](loopback& comm) {
                 forgetful careless(comm, comm.rank() == 1 ? forgotten : -1);
                 backward<>::launch(careless, make_ring_plan(comm, one.sequences, ring_pass::backward),
                                    tensors[comm.rank()]->problem());
                 comm.synchronise();
             })) {
            if (outcome) return true;
        }
        for (const auto& rank : tensors) {
            for (const auto* gradient :
                 {&rank->rounded_d_q.values, &rank->rounded_d_k.values, &rank->rounded_d_v.values}) {
                if (std::any_of(gradient->begin(), gradient->end(), [](bf16 x) { return std::isnan(float(x)); })) {
                    return true;
                }
            }
        }
    }
    return false;
}

}  // namespace

TEST_CASE("backward: the checked world detects every removed wait of a ring and a mesh") {
    for (const int chunks : {1, 2, 4}) {
        const ring_case one({schedule_of(24, 4, token_placement::zigzag, chunks)});
        const int exchanges = requests_of(ring_plan(one.sequences, 1, ring_pass::backward));
        CAPTURE(chunks);
        CHECK(exchanges >= 5);
        CHECK(!shows(one, -1));
        for (send_recv_request forgotten = 0; forgotten < exchanges; ++forgotten) {
            CAPTURE(forgotten);
            CHECK(shows(one, forgotten));
        }
    }
}

TEST_CASE("backward: check of a ring and of a mesh") {
    for (const int q_chunks : {1, 2}) {
        CAPTURE(q_chunks);
        const ring_case one({schedule_of(30, 4, token_placement::zigzag, q_chunks)});
        auto tensors = one.tensors(world::host_checked);
        std::vector<ring_backward_problem<bf16>> problems;
        for (const auto& mine : tensors) problems.push_back(mine->problem());
        CHECK(text_of(backward<>::check(problems, {.schedules = schedules_to_run(1000) / 50}, one.sequences)) == "");
        // dK arrives where dV arrives.
        problems[2].d_k = problems[2].d_v;
        CHECK(error_message_of([&] {
                  backward<>::check(problems, {.schedules = 3}, one.sequences);
              }).find("hazard: ") == 0);
    }
}
#endif

TEST_CASE("backward: invalid arguments of ring attention") {
    for (const world where : worlds()) {
        loopback_group group(where, 1);
        loopback comm(group, 0);
        const ring_case one({schedule_of(20, 1, token_placement::contiguous)});
        auto tensors = one.tensors(where);
        const auto right = tensors[0]->problem();
        const auto refused = [&](const ring_plan& plan, const auto& change) {
            ring_backward_problem<bf16> p = right;
            change(p);
            return error_message_of([&] { backward<>::launch(comm, plan, p); });
        };
        const ring_plan plan(one.sequences, 0, ring_pass::backward);
        CHECK(refused(plan, [](auto& p) { p.d_k = nullptr; }) == "d_k: null; 20 x 1 x 64 elements are needed");
        CHECK(refused(plan, [](auto& p) { p.out = nullptr; }) == "out: null; 20 x 2 x 64 elements are needed");
        CHECK(refused(plan, [](auto& p) { p.workspace = nullptr; }).find("workspace: ") == 0);
        CHECK(refused(plan, [&](auto& p) { p.d_sinks = p.d_q; }) ==
              "sinks: null; d_sinks needs the 2 logits of the forward pass");
        CHECK(refused(ring_plan(one.sequences, 0), [](auto&) {}) ==
              "plan.pass(): forward; must be ring_pass::backward");
    }
}
