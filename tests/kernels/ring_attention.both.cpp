// Attention by ranks that each have some of the tokens, against attention to all of them in float64: every schedule, every number of ranks up to
// eight, lengths that do not come out even, sequences of different lengths together, and what becomes of a rank that fails.
#include "kernels/whole_attention.hpp"
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
using imbrex_test::expected;
using imbrex_test::expected_row;
using imbrex_test::refusal_of;
using imbrex_test::whole_sequence;
using imbrex_test::worlds;

namespace {

constexpr int depth = imbrex_test::whole_depth;
using tiles_of_64 = attention_tiles<64>;
template <class Score = plain_score>
using attention = ring_attention<bf16, Score, tiles_of_64>;

// All that a rank has of some sequences, in its own order of rows.
struct rank_tensors {
    buffer<bf16> q, k, v, rounded;
    buffer<float> out, log2_sums;
    world_memory workspace;

    rank_tensors(world where, const ring_plan& plan)
        : q(where, elements(plan, plan.sizes().heads)),
          k(where, elements(plan, plan.sizes().key_heads)),
          v(where, elements(plan, plan.sizes().key_heads)),
          rounded(where, elements(plan, plan.sizes().heads), bf16(std::numeric_limits<float>::quiet_NaN())),
          out(where, elements(plan, plan.sizes().heads), std::numeric_limits<float>::quiet_NaN()),
          log2_sums(where, plan.rows_of(plan.rank()) * plan.sizes().heads, std::numeric_limits<float>::quiet_NaN()),
          workspace(where, attention<>::workspace_bytes(plan)) {}

    ring_problem<bf16> problem() {
        return {.q = q.send(),
                .k = k.send(),
                .v = v.send(),
                .out = out.send(),
                .log2_sums = log2_sums.send(),
                .workspace = workspace.at(),
                .rounded = rounded.send()};
    }
    static std::size_t elements(const ring_plan& plan, int heads) {
        return std::size_t(plan.rows_of(plan.rank())) * heads * depth;
    }
};

// Calls visit(row of the rank, sequence, token) for all rows of a rank.
template <class Visit>
void each_row(const ring_plan& plan, int rank, const Visit& visit) {
    std::int64_t row = 0;
    int number = 0;
    for (const sequence_schedule& one : plan.sequences()) {
        const token_runs tokens = one.tokens_of(rank);
        for (int member = 0; member < one.sizes.batches; ++member, ++number) {
            for (int i = 0; i < tokens.count(); ++i) visit(row++, number, tokens.position(i));
        }
    }
}

struct ring_case {
    std::vector<sequence_schedule> sequences;
    std::vector<whole_sequence> whole;  // one for each member of each batch

    ring_case(std::vector<sequence_schedule> all, unsigned seed) : sequences(std::move(all)) {
        std::mt19937 random(seed);
        for (sequence_schedule& one : sequences) {
            one.sizes.depth = one.sizes.value_depth = depth;
            for (int member = 0; member < one.sizes.batches; ++member) {
                whole.emplace_back(one.tokens, one.sizes.heads, one.sizes.key_heads, random);
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
                    const bf16* const begin = (whole[number].*from).data() + std::size_t(token) * heads * depth;
                    std::copy(begin, begin + heads * depth, to.values.begin() + row * heads * depth);
                });
            };
            fill(mine->q, &whole_sequence::q, plan.sizes().heads);
            fill(mine->k, &whole_sequence::k, plan.sizes().key_heads);
            fill(mine->v, &whole_sequence::v, plan.sizes().key_heads);
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
        mine.out.fetch();
        mine.log2_sums.fetch();
        mine.rounded.fetch();
        const int heads = plan.sizes().heads;
        const std::int64_t rows = plan.rows_of(rank);
        each_row(plan, rank, [&](std::int64_t row, int number, int token) {
            for (int head = 0; head < heads; ++head) {
                const expected_row right = expected(one.whole[number], plan.sequences().front().mask, token, head, cap,
                                                    sinks.empty() ? nullptr : &sinks[head]);
                const auto larger = [](double a, double b) { return std::isnan(b) || b > a ? b : a; };
                worst_sum = larger(worst_sum, std::abs(mine.log2_sums.values[head * rows + row] - right.log2_sum));
                for (int i = 0; i < depth; ++i) {
                    const std::size_t at = (row * heads + head) * depth + i;
                    worst = larger(worst, std::abs(mine.out.values[at] - right.out[i]));
                    worst_rounded =
                        larger(worst_rounded, std::abs(double(float(mine.rounded.values[at])) - mine.out.values[at]) /
                                                  (std::abs(mine.out.values[at]) + 1e-30));
                }
            }
        });
    }
    // Weights are rounded to bf16 before they are multiplied with values.
    CHECK(worst < 0.02);
    CHECK(worst_sum < 0.002);
    CHECK(worst_rounded <= 1.0 / 256);
}

template <class Score = plain_score>
void run_case(world where, const ring_case& one, std::uint64_t seed = 0, const Score& score = {}, double cap = 0) {
    auto tensors = one.tensors(where);
    loopback_group group(where, one.sequences.front().ranks, {.patience = 60s, .seed = seed});
    run_ranks(group, [&](loopback& link) {
        const ring_plan plan = agreed_plan(link, one.sequences);
        const world_stream stream(where);
        attention<Score>::launch(link, plan, tensors[link.rank()]->problem(), score, stream.get());
        link.finish(stream.get());
    });
    compare(one, tensors, cap);
}

sequence_schedule schedule_of(int tokens, int ranks, token_placement placement, int query_chunks = 1,
                              window_mask mask = as_window(causal_mask{}), int heads = 2, int key_heads = 1) {
    return {.tokens = tokens,
            .ranks = ranks,
            .query_chunks = query_chunks,
            .placement = placement,
            .mask = mask,
            .sizes = {.heads = heads, .key_heads = key_heads}};
}

constexpr token_placement placements[] = {token_placement::contiguous, token_placement::zigzag,
                                          token_placement::striped};

}  // namespace

TEST_CASE("rings of one to eight ranks give what one device gives") {
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

TEST_CASE("meshes give what one device gives") {
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

TEST_CASE("full masks and windows, also where keys go no farther than they are seen") {
    for (const world where : worlds()) {
        for (const window_mask mask : {as_window(full_mask{}), window_mask{40, 0}, window_mask{11, 30}}) {
            for (const token_placement placement : placements) {
                for (const key_travel travel : {key_travel::all_round, key_travel::as_far_as_seen}) {
                    CAPTURE(name_of(where));
                    CAPTURE(mask.left);
                    CAPTURE(name_of(placement));
                    sequence_schedule one = schedule_of(150, 4, placement, 1, mask);
                    one.travel = travel;
                    run_case(where, ring_case({one}, 7), 3);
                }
            }
        }
    }
}

TEST_CASE("sequences of different lengths, and batches, go round together") {
    for (const world where : worlds()) {
        for (const token_placement placement : placements) {
            for (const int chunks : {1, 2}) {
                CAPTURE(name_of(where));
                CAPTURE(name_of(placement));
                std::vector<sequence_schedule> all;
                for (const auto& [tokens, batches] : {std::pair{70, 1}, {3, 2}, {0, 1}, {129, 2}}) {
                    all.push_back(schedule_of(tokens, 4, placement, chunks, as_window(causal_mask{}), 4, 2));
                    all.back().sizes.batches = batches;
                }
                run_case(where, ring_case(all, 11), 1);
            }
        }
    }
}

TEST_CASE("a score that does not depend on places is taken") {
    for (const world where : worlds()) {
        run_case(where, ring_case({schedule_of(100, 3, token_placement::zigzag)}, 5), 0, softcap{2.0f}, 2.0);
    }
}

TEST_CASE("sinks take up weight once, however many ranks there are") {
    for (const world where : worlds()) {
        const ring_case one({schedule_of(60, 4, token_placement::zigzag, 2)}, 6);
        auto tensors = one.tensors(where);
        buffer<float> sinks(where, 2);
        sinks.values = {1.5f, -0.5f};
        const float* const there = sinks.send();
        loopback_group group(where, 4, {.patience = 60s});
        run_ranks(group, [&](loopback& link) {
            const ring_plan plan = agreed_plan(link, one.sequences);
            const world_stream stream(where);
            ring_problem<bf16> p = tensors[link.rank()]->problem();
            p.sinks = there;
            attention<>::launch(link, plan, p, stream.get());
            link.finish(stream.get());
        });
        compare(one, tensors, 0, sinks.values);
    }
}

TEST_CASE("a query that is NaN is not taken for one that sees nothing") {
    for (const world where : worlds()) {
        const ring_case one({schedule_of(60, 4, token_placement::zigzag, 2)}, 6);
        auto tensors = one.tensors(where);
        const int row = 3, head = 1, rank = 1;
        tensors[rank]->q.values[(row * 2 + head) * depth + 5] = bf16(std::numeric_limits<float>::quiet_NaN());
        loopback_group group(where, 4, {.patience = 60s});
        run_ranks(group, [&](loopback& link) {
            const ring_plan plan = agreed_plan(link, one.sequences);
            const world_stream stream(where);
            attention<>::launch(link, plan, tensors[link.rank()]->problem(), stream.get());
            link.finish(stream.get());
        });
        rank_tensors& mine = *tensors[rank];
        mine.out.fetch();
        mine.log2_sums.fetch();
        const int rows = one.sequences[0].tokens_of(rank).count();
        for (int i = 0; i < rows; ++i) {
            for (int h = 0; h < 2; ++h) {
                const bool spoilt = i == row && h == head;
                CHECK(std::isnan(mine.log2_sums.values[h * rows + i]) == spoilt);
                CHECK(std::isnan(mine.out.values[(i * 2 + h) * depth]) == spoilt);
            }
        }
    }
}

#if !defined(__CUDACC__)
namespace {

// A transport whose user forgets to wait for one of his exchanges.
class forgetful {
  public:
    forgetful(loopback& link, exchange_ticket forgotten) : link_(link), forgotten_(forgotten) {}

    int rank() const { return link_.rank(); }
    int ranks() const { return link_.ranks(); }
    world where() const { return link_.where(); }
    exchange_ticket start(const exchange& one, void* stream) { return link_.start(one, stream); }
    void wait(exchange_ticket ticket, void* stream) {
        if (ticket != forgotten_) link_.wait(ticket, stream);
    }
    void finish(void* stream) { link_.finish(stream); }
    void gather(const void* mine, void* all, std::size_t bytes) { link_.gather(mine, all, bytes); }

  private:
    loopback& link_;
    exchange_ticket forgotten_;
};

// Whether it shows under one of some seeds that rank 1 does not wait for one of its exchanges: as a hazard, or in the result.
bool shows(const ring_case& one, exchange_ticket forgotten) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        auto tensors = one.tensors(world::host_checked);
        const int ranks = one.sequences.front().ranks;
        // Some that are not waited for leave others waiting.
        loopback_group group(world::host_checked, ranks, {.patience = forgotten < 0 ? 20000ms : 300ms, .seed = seed});
        for (const std::exception_ptr& outcome : outcomes_of_ranks(group, [&](loopback& link) {
                 forgetful careless(link, link.rank() == 1 ? forgotten : -1);
                 attention<>::launch(careless, agreed_plan(link, one.sequences), tensors[link.rank()]->problem());
                 link.finish();
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

TEST_CASE("the checked world tells of every wait of a ring or a mesh that is left out") {
    for (const auto& [chunks, exchanges] : {std::pair{1, 3}, {2, 3}, {4, 6}}) {
        const ring_case one({schedule_of(64, 4, token_placement::zigzag, chunks)}, 2);
        CAPTURE(chunks);
        CHECK(!shows(one, -1));
        for (exchange_ticket forgotten = 0; forgotten < exchanges; ++forgotten) {
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
            const int key_heads = from(1, 2), heads = key_heads * from(1, 3);
            const window_mask mask =
                from(0, 2) > 0 ? as_window(causal_mask{}) : window_mask{from(0, 60), from(0, 1) * from(0, 40)};
            sequence_schedule one =
                schedule_of(from(0, 240), ranks, placements[from(0, 2)], chunks, mask, heads, key_heads);
            one.travel = from(0, 1) == 0 ? key_travel::all_round : key_travel::as_far_as_seen;
            one.sizes.batches = from(1, 2);
            sequence_schedule second = one;
            second.tokens = from(0, 90);
            CAPTURE(i);
            CAPTURE(one.tokens);
            CAPTURE(ranks);
            CAPTURE(chunks);
            run_case(where, ring_case({one, second}, i), i);
        }
    }
}

TEST_CASE("ranks that name different sequences are all told which rank, and what") {
    for (const world where : worlds()) {
        const auto told = [&](int other, const auto& change) {
            loopback_group group(where, 3, {.patience = 20s});
            std::vector<std::string> texts;
            for (const std::exception_ptr& outcome : outcomes_of_ranks(group, [&](loopback& link) {
                     std::vector<sequence_schedule> all = {schedule_of(10, 3, token_placement::zigzag)};
                     if (link.rank() == other) change(all);
                     agreed_plan(link, all);
                 })) {
                texts.push_back(refusal_of([&] {
                    if (outcome) std::rethrow_exception(outcome);
                }));
            }
            return texts;
        };
        using schedules = std::vector<sequence_schedule>;
        for (const std::string& text : told(2, [](schedules& all) { all[0].sizes.heads = 4; })) {
            CHECK(text == "sizes.heads: 4 on rank 2, and 2 on rank 0, before step 0; all ranks must name the same");
        }
        for (const std::string& text : told(1, [](schedules& all) { all.push_back(all[0]); })) {
            CHECK(text ==
                  "the number of schedules: 2 on rank 1, and 1 on rank 0, before step 0; all ranks must name the same");
        }
        for (const std::string& text : told(1, [](schedules& all) { all[0].tokens = 11; })) {
            CHECK(text.find("tokens and sizes.batches of all schedules, mixed into one number: ") == 0);
        }
        const auto texts = told(1, [](schedules& all) { all[0].ranks = 4; });
        CHECK(texts[0] == "rank 1 was refused its arguments, before step 0");
        CHECK(texts[1] == "ranks: 4; the transport has 3");
        CHECK(texts[2] == texts[0]);
        CHECK(told(0, [](schedules& all) { all.clear(); })[0] == "sequences: none; one schedule at least is needed");
        CHECK(told(0,
                   [](schedules& all) {
                       all.push_back(all[0]);
                       all[1].mask.left = 5;
                   })[0] == sentence("sequences, mask.left: 5 beside ", unbounded,
                                     "; they go round together, and differ in tokens and sizes.batches alone"));
    }
}

TEST_CASE("a rank that dies on the way is named to all others, and what they had is as it was") {
    for (const world where : worlds()) {
        const ring_case one({schedule_of(90, 4, token_placement::zigzag)}, 3);
        auto tensors = one.tensors(where);
        const auto before = one.tensors(where);
        loopback_group group(where, 4, {.patience = 20s});
        const auto outcomes = outcomes_of_ranks(group, [&](loopback& link) {
            const ring_plan plan = agreed_plan(link, one.sequences);
            const world_stream stream(where);
            if (link.rank() == 1) throw error("no more power");
            attention<>::launch(link, plan, tensors[link.rank()]->problem(), {}, stream.get());
            link.finish(stream.get());
        });
        for (const int rank : {0, 2, 3}) {
            CHECK(refusal_of([&] { std::rethrow_exception(outcomes[rank]); }) ==
                  "rank 1 failed in step 0: no more power");
        }
        for (int rank = 0; rank < 4; ++rank) {
            const auto same = [](buffer<bf16>& now, const buffer<bf16>& then) {
                now.fetch();
                return std::equal(now.values.begin(), now.values.end(), then.values.begin(),
                                  [](bf16 a, bf16 b) { return float(a) == float(b); });
            };
            if (rank == 1) continue;  // which sent nothing to its world
            CHECK(same(tensors[rank]->q, before[rank]->q));
            CHECK(same(tensors[rank]->k, before[rank]->k));
            CHECK(same(tensors[rank]->v, before[rank]->v));
        }
    }
}

TEST_CASE("a ring refuses what it cannot do") {
    for (const world where : worlds()) {
        loopback_group group(where, 1);
        loopback link(group, 0);
        const ring_case one({schedule_of(20, 1, token_placement::contiguous)}, 3);
        auto tensors = one.tensors(where);
        const ring_problem<bf16> right = tensors[0]->problem();
        const auto refused = [&](const ring_plan& plan, const auto& change) {
            ring_problem<bf16> p = right;
            change(p);
            return refusal_of([&] { attention<>::launch(link, plan, p); });
        };
        const ring_plan plan(one.sequences, 0);
        CHECK(refused(plan, [](auto& p) { p.k = nullptr; }) == "k: null; 20 x 1 x 64 elements are needed");
        CHECK(refused(plan, [](auto& p) { p.log2_sums = nullptr; }) ==
              "log2_sums: null; 20 x 2 x 1 elements are needed");
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
