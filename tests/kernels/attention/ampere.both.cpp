// Ampere-class attention against plain loops in double: head dims that fill their tiles or do not, ragged, padded and
// varlen sequences with NaN around them, masks, score_mods, sinks, GQA, merged and partial outputs; no hazard in any
// schedule, and every mutation of its synchronisation detected.
#include <imbrex/kernels/attention/ampere.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr float scale = 0.25f;
constexpr float nothing = std::numeric_limits<float>::quiet_NaN();

// The rows of one sequence.
struct member {
    int first_query, seqlen_q;
    int first_key, seqlen_k;
};

struct sequences {
    int heads, kv_heads;
    int query_rows, key_rows;  // of all sequences, including the rows between and behind them
    std::vector<member> members;
    bool packed = false;

    // Sequences of equal capacity, whose keys may end early.
    static sequences batch(int heads, int kv_heads, int seqlen_q, int seqlen_k, const std::vector<int>& lengths) {
        sequences made{heads, kv_heads, seqlen_q * int(lengths.size()), seqlen_k * int(lengths.size()), {}, false};
        for (int i = 0; i < int(lengths.size()); ++i)
            made.members.push_back({i * seqlen_q, seqlen_q, i * seqlen_k, lengths[i]});
        return made;
    }
    // Varlen, after some rows that belong to no sequence.
    static sequences in_a_row(int heads, int kv_heads, const std::vector<std::pair<int, int>>& lengths) {
        sequences made{heads, kv_heads, 3, 5, {}, true};
        for (const auto& [seqlen_q, seqlen_k] : lengths) {
            made.members.push_back({made.query_rows, seqlen_q, made.key_rows, seqlen_k});
            made.query_rows += seqlen_q;
            made.key_rows += seqlen_k;
        }
        made.query_rows += 20;
        made.key_rows += 70;
        return made;
    }
    int longest() const {
        int most = 0;
        for (const member& one : members) most = std::max(most, one.seqlen_q);
        return most;
    }
};

// Q, K, V and O as [row, head, head_dim] in the memory of a world. Rows that belong to no sequence are NaN, and so is
// O.
template <class In>
struct tensors {
    sequences given;
    int head_dim_qk, head_dim_v;
    buffer<In> q, k, v, out;
    buffer<float> lse2, wide, largest, sums;
    buffer<int> seqused_k, cu_seqlens_q, cu_seqlens_k;

    tensors(world where, const sequences& given, int head_dim_qk, int head_dim_v)
        : given(given),
          head_dim_qk(head_dim_qk),
          head_dim_v(head_dim_v),
          q(where, std::size_t(given.query_rows) * given.heads * head_dim_qk),
          k(where, std::size_t(given.key_rows) * given.kv_heads * head_dim_qk),
          v(where, std::size_t(given.key_rows) * given.kv_heads * head_dim_v),
          out(where, std::size_t(given.query_rows) * given.heads * head_dim_v, In(nothing)),
          lse2(where, std::size_t(given.query_rows) * given.heads, nothing),
          wide(where, out.values.size(), nothing),
          largest(where, lse2.values.size(), nothing),
          sums(where, lse2.values.size(), nothing),
          seqused_k(where, given.members.size()),
          cu_seqlens_q(where, given.members.size() + 1),
          cu_seqlens_k(where, given.members.size() + 1) {
        fill_random(q.values, 1);
        fill_random(k.values, 2);
        fill_random(v.values, 3);
        std::vector<bool> exists(given.key_rows, false);
        for (std::size_t i = 0; i < given.members.size(); ++i) {
            const member& one = given.members[i];
            for (int key = 0; key < one.seqlen_k; ++key) exists[one.first_key + key] = true;
            seqused_k.values[i] = one.seqlen_k;
            cu_seqlens_q.values[i] = one.first_query;
            cu_seqlens_q.values[i + 1] = one.first_query + one.seqlen_q;
            cu_seqlens_k.values[i] = one.first_key;
            cu_seqlens_k.values[i + 1] = one.first_key + one.seqlen_k;
        }
        for (int row = 0; row < given.key_rows; ++row) {
            if (exists[row]) continue;
            for (int i = 0; i < given.kv_heads * head_dim_qk; ++i) {
                k.values[std::size_t(row) * given.kv_heads * head_dim_qk + i] = In(nothing);
            }
            for (int i = 0; i < given.kv_heads * head_dim_v; ++i) {
                v.values[std::size_t(row) * given.kv_heads * head_dim_v + i] = In(nothing);
            }
        }
    }

    template <class T>
    attention_view<T> view_of(T* pointer, int all_rows, int heads, int head_dim) const {
        const int batches = given.packed ? 1 : int(given.members.size());
        const int rows = all_rows / batches;
        return {pointer,
                {batches, heads, rows, head_dim},
                {std::int64_t(rows) * heads * head_dim, head_dim, heads * head_dim}};
    }
    int rows_together() const { return given.query_rows / (given.packed ? 1 : int(given.members.size())); }

    template <class Kernel>
    typename Kernel::arguments arguments(decltype(Kernel::arguments::mask) mask = {},
                                         decltype(Kernel::arguments::score) score = {}, int l2_sections = 0) {
        const auto rows_of = [&](buffer<float>& one) {
            return attention_row_view{one.upload(), std::int64_t(given.heads) * rows_together(), rows_together()};
        };
        const int members = int(given.members.size());
        const attention_seqlens lengths =
            given.packed ? attention_seqlens{0, 0, nullptr, cu_seqlens_q.upload(), cu_seqlens_k.upload()}
                         : attention_seqlens{rows_together(), given.key_rows / members, seqused_k.upload()};
        return {view_of<const In>(q.upload(), given.query_rows, given.heads, head_dim_qk),
                view_of<const In>(k.upload(), given.key_rows, given.kv_heads, head_dim_qk),
                view_of<const In>(v.upload(), given.key_rows, given.kv_heads, head_dim_v),
                view_of<In>(out.upload(), given.query_rows, given.heads, head_dim_v),
                {rows_of(lse2), view_of<float>(wide.upload(), given.query_rows, given.heads, head_dim_v),
                 rows_of(largest), rows_of(sums)},
                mask,
                score,
                scale,
                scale_log2_after(score, scale),
                {members, given.heads,
                 given.packed ? attention_tile_scheduler::varlen_blocks(given.query_rows, members, Kernel::block_m)
                              : (given.longest() + Kernel::block_m - 1) / Kernel::block_m,
                 l2_sections},
                lengths,
                given.heads / given.kv_heads,
                nullptr};
    }

    // The index of a query's row values and its row of O.
    std::size_t number_at(int row, int head) const {
        return (std::size_t(row / rows_together()) * given.heads + head) * rows_together() + row % rows_together();
    }
    std::size_t row_at(int row, int head) const { return (std::size_t(row) * given.heads + head) * head_dim_v; }

    struct expected {
        std::vector<double> out;
        double lse2 = -INFINITY;
    };
    using keep_function = std::function<bool(const attention_extents&, int, int)>;
    using score_function = std::function<double(double)>;

    // A sink of -infinity has no effect.
    expected attend(int number, int query, int head, const keep_function& keep, const score_function& score,
                    double sink = -INFINITY) const {
        const member& one = given.members[number];
        const attention_extents sequence{number, head, one.seqlen_q, one.seqlen_k};
        const int kv_head = head / (given.heads / given.kv_heads);
        const auto key_row = [&](int key) { return std::size_t(one.first_key + key) * given.kv_heads + kv_head; };
        const std::size_t query_row = std::size_t(one.first_query + query) * given.heads + head;
        std::vector<double> scores(one.seqlen_k, -INFINITY);
        double most = sink;
        for (int key = 0; key < one.seqlen_k; ++key) {
            if (!keep(sequence, query, key)) continue;
            double dot = 0;
            for (int i = 0; i < head_dim_qk; ++i) {
                dot += double(float(q.values[query_row * head_dim_qk + i])) *
                       float(k.values[key_row(key) * head_dim_qk + i]);
            }
            scores[key] = score(dot * scale);
            most = std::fmax(most, scores[key]);
        }
        expected made{std::vector<double>(head_dim_v)};
        if (most == -INFINITY) return made;
        double sum = std::exp(sink - most);
        for (int key = 0; key < one.seqlen_k; ++key) {
            if (scores[key] == -INFINITY) continue;
            const double weight = std::exp(scores[key] - most);
            sum += weight;
            for (int i = 0; i < head_dim_v; ++i) made.out[i] += weight * float(v.values[key_row(key) * head_dim_v + i]);
        }
        for (double& x : made.out) x /= sum;
        made.lse2 = (most + std::log(sum)) * 1.4426950408889634;
        return made;
    }

    // Calls visit(expected, row, head) for each query of each sequence.
    template <class Visit>
    void each_query(const keep_function& keep, const score_function& score, const std::vector<float>& sinks,
                    Visit visit) const {
        for (int number = 0; number < int(given.members.size()); ++number) {
            for (int query = 0; query < given.members[number].seqlen_q; ++query) {
                for (int head = 0; head < given.heads; ++head) {
                    const double sink = sinks.empty() ? -INFINITY : sinks[head];
                    visit(attend(number, query, head, keep, score, sink), given.members[number].first_query + query,
                          head);
                }
            }
        }
    }
};

void note(double& worst, double right, double found) {
    const double error = right == found ? 0 : std::abs(right - found);
    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
}

double unchanged(double x) {
    return x;
}
bool every_key(const attention_extents&, int, int) {
    return true;
}

template <class Kernel, class In, class Mask = full_mask, class Score = score_mod::identity>
void check_attention(int blocks, const sequences& given, int head_dim_qk, int head_dim_v, Mask mask = {},
                     Score score = {}, double (*expected_score)(double) = unchanged, int l2_sections = 0,
                     const std::vector<float>& sinks = {}) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.query_rows);
        CAPTURE(given.key_rows);
        tensors<In> there(where, given, head_dim_qk, head_dim_v);
        auto arguments = there.template arguments<Kernel>(mask, score, l2_sections);
        buffer<float> sink_values(where, sinks.size());
        sink_values.values = sinks;
        if (!sinks.empty()) arguments.sinks = sink_values.upload();
        run<Kernel>(where, {blocks}, arguments, 2);
        there.out.download();
        there.lse2.download();
        double worst = 0, worst_log2 = 0;
        const auto keep = [&](const attention_extents& s, int query, int key) { return mask.keep(s, query, key); };
        there.each_query(keep, expected_score, sinks, [&](const auto& right, int row, int head) {
            for (int i = 0; i < head_dim_v; ++i) {
                In& found = there.out.values[there.row_at(row, head) + i];
                note(worst, right.out[i], float(found));
                found = In(nothing);
            }
            note(worst_log2, right.lse2, there.lse2.values[there.number_at(row, head)]);
        });
        CHECK(worst <= 0.01);
        CHECK(worst_log2 <= 0.001);
        // Rows that belong to no sequence are unchanged.
        for (const In& value : there.out.values) REQUIRE(std::isnan(float(value)));
    }
}

struct every_third : mask_base {
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        return (query + key + s.head) % 3 == 0;
    }
};

// The smallest shapes that exercise all parts of the kernel.
constexpr attention_ampere_shape one_stage{.warps = 2, .block_n = 32, .stages = 1};
constexpr attention_ampere_shape two_stages{.warps = 2, .block_n = 32, .stages = 2, .q_in_registers = true};
constexpr attention_ampere_shape tall{.warps = 2, .warp_rows = 32, .block_n = 48, .stages = 1};

template <attention_ampere_shape Shape, class Mask = full_mask, class Score = score_mod::identity,
          attention_output_mode Result = attention_output_mode::normalised>
struct small : attention_ampere<bf16, 64, 64, Mask, Score, Shape, Result> {};

}  // namespace

TEST_CASE("computes full attention for all head dims") {
    const sequences few = sequences::batch(2, 1, 130, 150, {150, 70});
    check_attention<attention_ampere<bf16, 64, 64>, bf16>(3, few, 64, 64);
    check_attention<attention_ampere<fp16, 64, 64>, fp16>(3, few, 64, 64);
    check_attention<attention_ampere<bf16, 96, 96>, bf16>(2, few, 80, 80);
    check_attention<attention_ampere<fp16, 128, 128>, fp16>(3, few, 128, 128);
    check_attention<attention_ampere<bf16, 192, 128>, bf16>(3, few, 192, 128);
    check_attention<attention_ampere<bf16, 256, 256>, bf16>(3, few, 256, 256);
}

TEST_CASE("accepts rows that are aligned to neither 16 nor 4 bytes") {
    const sequences few = sequences::batch(3, 3, 40, 70, {70});
    check_attention<attention_ampere<bf16, 96, 96>, bf16>(2, few, 70, 90);
    check_attention<attention_ampere<fp16, 96, 96>, fp16>(2, few, 75, 67);
}

TEST_CASE("accepts any sequence lengths, also no keys and one key") {
    for (const int seqlen_k : {0, 1, 31, 32, 33, 100}) {
        const sequences given = sequences::batch(1, 1, 37, seqlen_k, {seqlen_k});
        check_attention<small<one_stage>, bf16>(1, given, 64, 64);
        check_attention<small<two_stages>, bf16>(2, given, 64, 64);
        check_attention<small<tall>, bf16>(1, given, 64, 64);
    }
    check_attention<small<two_stages>, bf16>(1, sequences::batch(2, 2, 1, 90, {90}), 64, 64);
    check_attention<small<one_stage>, bf16>(4, sequences::batch(4, 2, 50, 90, {90, 0, 1, 64}), 64, 64);
}

TEST_CASE("applies masks: causal, window, chunked, intersection, custom") {
    const sequences few = sequences::batch(2, 1, 100, 170, {170, 120});
    const sequences many_queries = sequences::batch(2, 2, 100, 40, {40});
    check_attention<small<one_stage, causal_mask>, bf16>(3, few, 64, 64, causal_mask{}, score_mod::identity{},
                                                         unchanged, 1);
    check_attention<small<two_stages, causal_mask>, bf16>(3, few, 64, 64, causal_mask{}, score_mod::identity{},
                                                          unchanged, 2);
    check_attention<small<one_stage, causal_mask>, bf16>(2, many_queries, 64, 64, causal_mask{});
    check_attention<small<two_stages, window_mask>, bf16>(2, few, 64, 64, window_mask{40, 0});
    check_attention<small<one_stage, window_mask>, bf16>(2, few, 64, 64, window_mask{20, 30});
    using chunks = and_mask<causal_mask, chunked_mask>;
    check_attention<small<two_stages, chunks>, bf16>(2, few, 64, 64, chunks{{}, {48}});
    check_attention<small<one_stage, every_third>, bf16>(2, few, 64, 64, every_third{});
}

TEST_CASE("applies softcap and attention sinks") {
    const sequences few = sequences::batch(2, 2, 70, 90, {90, 33});
    check_attention<small<two_stages, causal_mask, score_mod::softcap>, bf16>(
        2, few, 64, 64, causal_mask{}, score_mod::softcap{1.0f}, [](double x) { return std::tanh(x); });
    check_attention<small<one_stage>, bf16>(2, few, 64, 64, full_mask{}, score_mod::identity{}, unchanged, 0,
                                            {0.5f, 9.0f});
}

TEST_CASE("computes varlen attention and leaves NaN between sequences unchanged") {
    const sequences row = sequences::in_a_row(4, 2, {{70, 100}, {0, 30}, {1, 1}, {100, 64}, {33, 0}, {5, 70}});
    check_attention<small<one_stage, causal_mask>, bf16>(3, row, 64, 64, causal_mask{});
    check_attention<small<two_stages>, bf16>(2, row, 64, 64);
    check_attention<attention_ampere<bf16, 96, 96, causal_mask>, bf16>(3, row, 80, 80, causal_mask{});
}

TEST_CASE("merges parts of the keys to the full result; partial outputs have row_max and row_sum") {
    using merging = small<two_stages, full_mask, score_mod::identity, attention_output_mode::merged>;
    using partial = small<one_stage, full_mask, score_mod::identity, attention_output_mode::partial>;
    const int seqlen_q = 50, seqlen_k = 100;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        tensors<bf16> there(where, sequences::batch(2, 1, seqlen_q, seqlen_k, {seqlen_k}), 64, 64);
        there.lse2.values.assign(there.lse2.values.size(), -INFINITY);
        auto arguments = there.arguments<merging>();
        const auto k = arguments.k, v = arguments.v;
        // The checker runs a kernel many times: outputs that are merged in place run once.
        for (const auto& [first, end] : {std::pair{0, 37}, std::pair{37, 100}}) {
            arguments.k.pointer = k.pointer + first * 64;
            arguments.v.pointer = v.pointer + first * 64;
            arguments.lengths = {seqlen_q, end - first};
            launch<merging>(where, {2}, arguments);
        }
        there.wide.download();
        there.lse2.download();
        double worst = 0, worst_log2 = 0;
        there.each_query(every_key, unchanged, {}, [&](const auto& right, int row, int head) {
            for (int i = 0; i < 64; ++i) note(worst, right.out[i], there.wide.values[there.row_at(row, head) + i]);
            note(worst_log2, right.lse2, there.lse2.values[there.number_at(row, head)]);
        });
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);

        run<partial>(where, {2}, there.arguments<partial>(), 2);
        there.wide.download();
        there.largest.download();
        there.sums.download();
        worst = worst_log2 = 0;
        there.each_query(every_key, unchanged, {}, [&](const auto& right, int row, int head) {
            const double sum = there.sums.values[there.number_at(row, head)];
            for (int i = 0; i < 64; ++i)
                note(worst, right.out[i], there.wide.values[there.row_at(row, head) + i] / sum);
            note(worst_log2, right.lse2, there.largest.values[there.number_at(row, head)] + std::log2(sum));
        });
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);
    }
}

#if !defined(__CUDACC__)
template <attention_ampere_shape Shape>
void check_schedules() {
    using kernel = attention_ampere<bf16, 32, 32, causal_mask, score_mod::identity, Shape>;
    // The last work has one key tile: no barrier separates its Q from the next.
    tensors<bf16> there(world::host, sequences::in_a_row(2, 1, {{70, 100}, {33, 40}, {20, 20}, {9, 30}, {16, 16}}), 32,
                        32);
    const auto arguments = there.arguments<kernel>(causal_mask{});
    check_synchronisation<kernel>("attention on sm_80", {2}, arguments);
}

TEST_CASE("Ampere-class attention has no hazard in any schedule, and the checker detects every mutation") {
    check_schedules<one_stage>();
    check_schedules<two_stages>();
}
#endif
