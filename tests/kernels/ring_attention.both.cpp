// Ring attention against attention on one rank in float64: every schedule, every number of ranks up to eight, uneven
// lengths, sequences of different lengths together, and failing ranks.
#include "kernels/ring_trial.hpp"
#include "kernels/whole_attention.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/ring_attention.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace std::chrono_literals;
using imbrex_test::buffer;
using imbrex_test::each_row;
using imbrex_test::error_message_of;
using imbrex_test::expected;
using imbrex_test::expected_row;
using imbrex_test::placements;
using imbrex_test::schedule_of;
using imbrex_test::whole_sequence;
using imbrex_test::worlds;

namespace {

constexpr int head_dim = imbrex_test::whole_head_dim;
constexpr attention_head_dim_set head_dim_64{64};
template <class Score = score_mod::identity>
using attention = ring_attention<bf16, head_dim_64, Score>;

// All that a rank has of some sequences, in its own order of rows.
struct rank_tensors {
    buffer<bf16> q, k, v, rounded;
    buffer<float> out, lse2;
    world_memory workspace;

    rank_tensors(world where, const ring_plan& plan)
        : q(where, elements(plan, plan.sizes().heads)),
          k(where, elements(plan, plan.sizes().kv_heads)),
          v(where, elements(plan, plan.sizes().kv_heads)),
          rounded(where, elements(plan, plan.sizes().heads), bf16(std::numeric_limits<float>::quiet_NaN())),
          out(where, elements(plan, plan.sizes().heads), std::numeric_limits<float>::quiet_NaN()),
          lse2(where, plan.rows_of(plan.rank()) * plan.sizes().heads, std::numeric_limits<float>::quiet_NaN()),
          workspace(where, attention<>::workspace_bytes(plan)) {}

    ring_problem<bf16> problem() {
        return {.q = q.upload(),
                .k = k.upload(),
                .v = v.upload(),
                .out = out.upload(),
                .lse2 = lse2.upload(),
                .workspace = workspace.at(),
                .rounded = rounded.upload()};
    }
    static std::size_t elements(const ring_plan& plan, int heads) {
        return std::size_t(plan.rows_of(plan.rank())) * heads * head_dim;
    }
};

struct ring_case {
    std::vector<ring_schedule> sequences;
    std::vector<whole_sequence> whole;  // one per batch entry

    ring_case(std::vector<ring_schedule> all, unsigned seed) : sequences(std::move(all)) {
        std::mt19937 random(seed);
        for (ring_schedule& one : sequences) {
            one.sizes.head_dim = one.sizes.head_dim_v = head_dim;
            for (int member = 0; member < one.sizes.batches; ++member) {
                whole.emplace_back(one.tokens, one.sizes.heads, one.sizes.kv_heads, random);
            }
        }
    }
    std::vector<std::unique_ptr<rank_tensors>> tensors(world where) const {
        std::vector<std::unique_ptr<rank_tensors>> made;
        for (int rank = 0; rank < sequences.front().ranks; ++rank) {
            const ring_plan plan(sequences, rank);
            auto mine = std::make_unique<rank_tensors>(where, plan);
            const auto fill = [&](buffer<bf16>& to, const std::vector<bf16> whole_sequence::*from, int heads) {
                each_row(plan, rank, [&](std::int64_t row, int number, int token) {
                    const bf16* const begin = (whole[number].*from).data() + std::size_t(token) * heads * head_dim;
                    std::copy(begin, begin + heads * head_dim, to.values.begin() + row * heads * head_dim);
                });
            };
            fill(mine->q, &whole_sequence::q, plan.sizes().heads);
            fill(mine->k, &whole_sequence::k, plan.sizes().kv_heads);
            fill(mine->v, &whole_sequence::v, plan.sizes().kv_heads);
            made.push_back(std::move(mine));
        }
        return made;
    }
};

void compare(const ring_case& one, std::vector<std::unique_ptr<rank_tensors>>& tensors, double cap = 0,
             const std::vector<float>& sinks = {}) {
    double worst = 0, worst_sum = 0, worst_rounded = 0;
    for (int rank = 0; rank < one.sequences.front().ranks; ++rank) {
        const ring_plan plan(one.sequences, rank);
        rank_tensors& mine = *tensors[rank];
        mine.out.download();
        mine.lse2.download();
        mine.rounded.download();
        const int heads = plan.sizes().heads;
        const std::int64_t rows = plan.rows_of(rank);
        each_row(plan, rank, [&](std::int64_t row, int number, int token) {
            for (int head = 0; head < heads; ++head) {
                const expected_row right = expected(one.whole[number], plan.sequences().front().mask, token, head, cap,
                                                    sinks.empty() ? nullptr : &sinks[head]);
                const auto larger = [](double a, double b) { return std::isnan(b) || b > a ? b : a; };
                worst_sum = larger(worst_sum, std::abs(mine.lse2.values[head * rows + row] - right.lse2));
                for (int i = 0; i < head_dim; ++i) {
                    const std::size_t at = (row * heads + head) * head_dim + i;
                    worst = larger(worst, std::abs(mine.out.values[at] - right.out[i]));
                    worst_rounded =
                        larger(worst_rounded, std::abs(double(float(mine.rounded.values[at])) - mine.out.values[at]) /
                                                  (std::abs(mine.out.values[at]) + 1e-30));
                }
            }
        });
    }
    // Probabilities are rounded to bf16 before P V.
    CHECK(worst < 0.02);
    CHECK(worst_sum < 0.002);
    CHECK(worst_rounded <= 1.0 / 256);
}

template <class Score = score_mod::identity>
void run_case(world where, const ring_case& one, std::uint64_t seed = 0, const Score& score = {}, double cap = 0) {
    auto tensors = one.tensors(where);
    loopback_group group(where, one.sequences.front().ranks, {.timeout = 60s, .seed = seed});
    run_ranks(group, [&](loopback& comm) {
        const ring_plan plan = make_ring_plan(comm, one.sequences);
        const world_stream stream(where);
        attention<Score>::launch(comm, plan, tensors[comm.rank()]->problem(), score, stream.get());
        comm.synchronise(stream.get());
    });
    compare(one, tensors, cap);
}

}  // namespace

TEST_CASE("rings of one to eight ranks match attention on one rank") {
    for (const world where : worlds()) {
        for (int ranks = 1; ranks <= 8; ++ranks) {
            for (const token_placement placement : placements) {
                CAPTURE(name_of(where));
                CAPTURE(ranks);
                CAPTURE(name_of(placement));
                run_case(where, ring_case({schedule_of(37 * ranks + 5, ranks, placement)}, ranks), ranks);
            }
        }
    }
}

TEST_CASE("meshes match attention on one rank") {
    for (const world where : worlds()) {
        for (const auto& [ranks, chunks] : {std::pair{2, 2}, {4, 2}, {4, 4}, {6, 2}, {6, 3}, {8, 2}, {8, 4}, {8, 8}}) {
            for (const token_placement placement : placements) {
                CAPTURE(name_of(where));
                CAPTURE(ranks);
                CAPTURE(chunks);
                CAPTURE(name_of(placement));
                run_case(where, ring_case({schedule_of(29 * ranks + 3, ranks, placement, chunks)}, ranks), chunks);
            }
        }
    }
}

TEST_CASE("full masks and windows, also with kv_rotation::while_visible") {
    for (const world where : worlds()) {
        for (const window_mask mask : {as_window(full_mask{}), window_mask{40, 0}, window_mask{11, 30}}) {
            for (const token_placement placement : placements) {
                for (const kv_rotation rotation : {kv_rotation::full_ring, kv_rotation::while_visible}) {
                    CAPTURE(name_of(where));
                    CAPTURE(mask.left);
                    CAPTURE(name_of(placement));
                    ring_schedule one = schedule_of(150, 4, placement, 1, mask);
                    one.rotation = rotation;
                    run_case(where, ring_case({one}, 7), 3);
                }
            }
        }
    }
}

TEST_CASE("sequences of different lengths, and batches, rotate together") {
    for (const world where : worlds()) {
        for (const token_placement placement : placements) {
            for (const int chunks : {1, 2}) {
                CAPTURE(name_of(where));
                CAPTURE(name_of(placement));
                std::vector<ring_schedule> all;
                for (const auto& [tokens, batches] : {std::pair{70, 1}, {3, 2}, {0, 1}, {129, 2}}) {
                    all.push_back(schedule_of(tokens, 4, placement, chunks, as_window(causal_mask{}), 4, 2));
                    all.back().sizes.batches = batches;
                }
                run_case(where, ring_case(all, 11), 1);
            }
        }
    }
}

TEST_CASE("accepts a score_mod that ignores positions") {
    for (const world where : worlds()) {
        run_case(where, ring_case({schedule_of(100, 3, token_placement::zigzag)}, 5), 0, score_mod::softcap{2.0f}, 2.0);
    }
}

TEST_CASE("attention sinks are added once, for any number of ranks") {
    for (const world where : worlds()) {
        const ring_case one({schedule_of(60, 4, token_placement::zigzag, 2)}, 6);
        auto tensors = one.tensors(where);
        buffer<float> sinks(where, 2);
        sinks.values = {1.5f, -0.5f};
        const float* const there = sinks.upload();
        loopback_group group(where, 4, {.timeout = 60s});
        run_ranks(group, [&](loopback& comm) {
            const ring_plan plan = make_ring_plan(comm, one.sequences);
            const world_stream stream(where);
            ring_problem<bf16> p = tensors[comm.rank()]->problem();
            p.sinks = there;
            attention<>::launch(comm, plan, p, stream.get());
            comm.synchronise(stream.get());
        });
        compare(one, tensors, 0, sinks.values);
    }
}

TEST_CASE("a NaN query is not mistaken for one that sees nothing") {
    for (const world where : worlds()) {
        const ring_case one({schedule_of(60, 4, token_placement::zigzag, 2)}, 6);
        auto tensors = one.tensors(where);
        const int row = 3, head = 1, rank = 1;
        tensors[rank]->q.values[(row * 2 + head) * head_dim + 5] = bf16(std::numeric_limits<float>::quiet_NaN());
        loopback_group group(where, 4, {.timeout = 60s});
        run_ranks(group, [&](loopback& comm) {
            const ring_plan plan = make_ring_plan(comm, one.sequences);
            const world_stream stream(where);
            attention<>::launch(comm, plan, tensors[comm.rank()]->problem(), stream.get());
            comm.synchronise(stream.get());
        });
        rank_tensors& mine = *tensors[rank];
        mine.out.download();
        mine.lse2.download();
        const int rows = one.sequences[0].tokens_of(rank).count();
        for (int i = 0; i < rows; ++i) {
            for (int h = 0; h < 2; ++h) {
                const bool spoilt = i == row && h == head;
                CHECK(std::isnan(mine.lse2.values[h * rows + i]) == spoilt);
                CHECK(std::isnan(mine.out.values[(i * 2 + h) * head_dim]) == spoilt);
            }
        }
    }
}

#if !defined(__CUDACC__)
namespace {

// Whether removing one wait of rank 1 shows under some seed: as a hazard, or in the result.
bool shows(const ring_case& one, send_recv_request forgotten) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        auto tensors = one.tensors(world::host_checked);
        const int ranks = one.sequences.front().ranks;
        // Without some waits other ranks wait forever.
        loopback_group group(world::host_checked, ranks, {.timeout = forgotten < 0 ? 20000ms : 300ms, .seed = seed});
        for (const std::exception_ptr& outcome : run_ranks_catching(group, [&](loopback& comm) {
                 imbrex_test::forgetful careless(comm, comm.rank() == 1 ? forgotten : -1);
                 attention<>::launch(careless, make_ring_plan(comm, one.sequences), tensors[comm.rank()]->problem());
                 comm.synchronise();
             })) {
            if (outcome) return true;
        }
        for (const auto& rank : tensors) {
            const auto& out = rank->out.values;
            if (std::any_of(out.begin(), out.end(), [](float x) { return std::isnan(x); })) return true;
        }
    }
    return false;
}

}  // namespace

TEST_CASE("the checked world detects every removed wait of a ring and a mesh") {
    for (const auto& [chunks, exchanges] : {std::pair{1, 3}, {2, 3}, {4, 6}}) {
        const ring_case one({schedule_of(64, 4, token_placement::zigzag, chunks)}, 2);
        CAPTURE(chunks);
        CHECK(!shows(one, -1));
        for (send_recv_request forgotten = 0; forgotten < exchanges; ++forgotten) {
            CAPTURE(forgotten);
            CHECK(shows(one, forgotten));
        }
    }
}
#endif

TEST_CASE("random rings and meshes") {
    std::mt19937 random(20);
    const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    for (const world where : worlds()) {
        for (int i = 0; i < (where == world::host_checked ? 12 : 40); ++i) {
            const int ranks = from(1, 8);
            int chunks = from(1, ranks);
            while (ranks % chunks != 0) --chunks;
            const int kv_heads = from(1, 2), heads = kv_heads * from(1, 3);
            const window_mask mask =
                from(0, 2) > 0 ? as_window(causal_mask{}) : window_mask{from(0, 60), from(0, 1) * from(0, 40)};
            ring_schedule one = schedule_of(from(0, 240), ranks, placements[from(0, 2)], chunks, mask, heads, kv_heads);
            one.rotation = from(0, 1) == 0 ? kv_rotation::full_ring : kv_rotation::while_visible;
            one.sizes.batches = from(1, 2);
            ring_schedule second = one;
            second.tokens = from(0, 90);
            CAPTURE(i);
            CAPTURE(one.tokens);
            CAPTURE(ranks);
            CAPTURE(chunks);
            run_case(where, ring_case({one, second}, i), i);
        }
    }
}

TEST_CASE("ranks with different sequences all get an error that names the rank and the argument") {
    for (const world where : worlds()) {
        const auto errors_after = [&](int other, const auto& change) {
            loopback_group group(where, 3, {.timeout = 20s});
            std::vector<std::string> texts;
            for (const std::exception_ptr& outcome : run_ranks_catching(group, [&](loopback& comm) {
                     std::vector<ring_schedule> all = {schedule_of(10, 3, token_placement::zigzag)};
                     if (comm.rank() == other) change(all);
                     make_ring_plan(comm, all);
                 })) {
                texts.push_back(error_message_of([&] {
                    if (outcome) std::rethrow_exception(outcome);
                }));
            }
            return texts;
        };
        using schedules = std::vector<ring_schedule>;
        for (const std::string& text : errors_after(2, [](schedules& all) { all[0].sizes.heads = 4; })) {
            CHECK(text == "sizes.heads: 4 on rank 2, and 2 on rank 0, before step 0; must be the same on all ranks");
        }
        for (const std::string& text : errors_after(1, [](schedules& all) { all.push_back(all[0]); })) {
            CHECK(
                text ==
                "the number of schedules: 2 on rank 1, and 1 on rank 0, before step 0; must be the same on all ranks");
        }
        for (const std::string& text : errors_after(1, [](schedules& all) { all[0].tokens = 11; })) {
            CHECK(text.find("hash of tokens and sizes.batches of all schedules: ") == 0);
        }
        const auto texts = errors_after(1, [](schedules& all) { all[0].ranks = 4; });
        CHECK(texts[0] == "rank 1 has invalid arguments, before step 0");
        CHECK(texts[1] == "ranks: 4; the transport has 3");
        CHECK(texts[2] == texts[0]);
        CHECK(errors_after(0, [](schedules& all) { all.clear(); })[0] ==
              "sequences: none; at least one schedule is needed");
        CHECK(errors_after(0,
                           [](schedules& all) {
                               all.push_back(all[0]);
                               all[1].mask.left = 5;
                           })[0] == str_cat("sequences, mask.left: 5 and ", unbounded,
                                            "; schedules of one plan may differ in tokens and sizes.batches only"));
    }
}

TEST_CASE("a rank that dies is named to all others, and their inputs are unchanged") {
    for (const world where : worlds()) {
        const ring_case one({schedule_of(90, 4, token_placement::zigzag)}, 3);
        auto tensors = one.tensors(where);
        const auto before = one.tensors(where);
        loopback_group group(where, 4, {.timeout = 20s});
        const auto outcomes = run_ranks_catching(group, [&](loopback& comm) {
            const ring_plan plan = make_ring_plan(comm, one.sequences);
            const world_stream stream(where);
            if (comm.rank() == 1) throw error("no more power");
            attention<>::launch(comm, plan, tensors[comm.rank()]->problem(), {}, stream.get());
            comm.synchronise(stream.get());
        });
        for (const int rank : {0, 2, 3}) {
            CHECK(error_message_of([&] { std::rethrow_exception(outcomes[rank]); }) ==
                  "rank 1 failed in step 0: no more power");
        }
        for (int rank = 0; rank < 4; ++rank) {
            const auto same = [](buffer<bf16>& now, const buffer<bf16>& then) {
                now.download();
                return std::equal(now.values.begin(), now.values.end(), then.values.begin(),
                                  [](bf16 a, bf16 b) { return float(a) == float(b); });
            };
            if (rank == 1) continue;  // it sent nothing to its world
            CHECK(same(tensors[rank]->q, before[rank]->q));
            CHECK(same(tensors[rank]->k, before[rank]->k));
            CHECK(same(tensors[rank]->v, before[rank]->v));
        }
    }
}

TEST_CASE("ring attention rejects invalid arguments") {
    for (const world where : worlds()) {
        loopback_group group(where, 1);
        loopback comm(group, 0);
        const ring_case one({schedule_of(20, 1, token_placement::contiguous)}, 3);
        auto tensors = one.tensors(where);
        const ring_problem<bf16> right = tensors[0]->problem();
        const auto refused = [&](const ring_plan& plan, const auto& change) {
            ring_problem<bf16> p = right;
            change(p);
            return error_message_of([&] { attention<>::launch(comm, plan, p); });
        };
        const ring_plan plan(one.sequences, 0);
        CHECK(refused(plan, [](auto& p) { p.k = nullptr; }) == "k: null; 20 x 1 x 64 elements are needed");
        CHECK(refused(plan, [](auto& p) { p.lse2 = nullptr; }) == "lse2: null; 20 x 2 x 1 elements are needed");
        ring_case other = one;
        other.sequences[0].sizes.element_bytes = 1;
        CHECK(refused(ring_plan(other.sequences, 0), [](auto&) {}) ==
              "plan.sizes().element_bytes: 1; the elements of this attention have 2");
        other = one;
        other.sequences[0].ranks = 2;
        CHECK(refused(ring_plan(other.sequences, 1), [](auto&) {}) == "plan.rank(): 1; the transport's rank is 0");
        CHECK(refused(ring_plan(other.sequences, 0), [](auto& p) { p.workspace = nullptr; }).find("workspace: ") == 0);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("check of a ring and of a mesh") {
    for (const int q_chunks : {1, 2}) {
        CAPTURE(q_chunks);
        const ring_case one({{.tokens = 90, .ranks = 4, .q_chunks = q_chunks, .sizes = {.heads = 2, .kv_heads = 1}}},
                            1);
        auto tensors = one.tensors(world::host_checked);
        std::vector<ring_problem<bf16>> problems;
        for (const auto& mine : tensors) problems.push_back(mine->problem());
        CHECK(imbrex_test::text_of(attention<>::check(problems, {.schedules = 3}, one.sequences)) == "");
        // The LSE of a rank is written where its output is.
        problems[2].lse2 = problems[2].out;
        const auto found = attention<>::check(problems, {.schedules = 3}, one.sequences);
        CHECK(imbrex_test::text_of(found).find("hazard: unsynchronised scope") == 0);
        problems[2].out = nullptr;
        CHECK(error_message_of([&] { attention<>::check(problems, {}, one.sequences); }).find("out: null; ") == 0);
        problems.pop_back();
        CHECK(error_message_of([&] {
                  attention<>::check(problems, {}, one.sequences);
              }).find("ranks: 4; the transport has 3") != std::string::npos);
    }
}
#endif
