// Attention on every GPU from sm_80 on against plain loops in double: depths that fill their tiles or do not, ragged, padded and
// packed sequences with NaN around them, masks, scores, sinks, shared key heads, merged and partial results; checked over many
// schedules, and every mutant of its synchronisation reported.
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
    int first_query, queries;
    int first_key, keys;
};

struct sequences {
    int heads, key_heads;
    int query_rows, key_rows;  // of all members, and what lies between and behind them
    std::vector<member> members;
    bool packed = false;

    // Members of one length each, the keys of which may end early.
    static sequences batch(int heads, int key_heads, int queries, int keys, const std::vector<int>& lengths) {
        sequences made{heads, key_heads, queries * int(lengths.size()), keys * int(lengths.size()), {}, false};
        for (int i = 0; i < int(lengths.size()); ++i)
            made.members.push_back({i * queries, queries, i * keys, lengths[i]});
        return made;
    }
    // One behind the other, after some rows that belong to none.
    static sequences in_a_row(int heads, int key_heads, const std::vector<std::pair<int, int>>& lengths) {
        sequences made{heads, key_heads, 3, 5, {}, true};
        for (const auto& [queries, keys] : lengths) {
            made.members.push_back({made.query_rows, queries, made.key_rows, keys});
            made.query_rows += queries;
            made.key_rows += keys;
        }
        made.query_rows += 20;
        made.key_rows += 70;
        return made;
    }
    int longest() const {
        int most = 0;
        for (const member& one : members) most = std::max(most, one.queries);
        return most;
    }
};

// Q, K, V and O as [row, head, column], sent to a world. What belongs to no member is NaN, and so is O.
template <class In>
struct tensors {
    sequences given;
    int key_depth, value_depth;
    buffer<In> q, k, v, out;
    buffer<float> log2_sums, wide, largest, sums;
    buffer<int> key_lengths, query_starts, key_starts;

    tensors(world where, const sequences& given, int key_depth, int value_depth)
        : given(given),
          key_depth(key_depth),
          value_depth(value_depth),
          q(where, std::size_t(given.query_rows) * given.heads * key_depth),
          k(where, std::size_t(given.key_rows) * given.key_heads * key_depth),
          v(where, std::size_t(given.key_rows) * given.key_heads * value_depth),
          out(where, std::size_t(given.query_rows) * given.heads * value_depth, In(nothing)),
          log2_sums(where, std::size_t(given.query_rows) * given.heads, nothing),
          wide(where, out.values.size(), nothing),
          largest(where, log2_sums.values.size(), nothing),
          sums(where, log2_sums.values.size(), nothing),
          key_lengths(where, given.members.size()),
          query_starts(where, given.members.size() + 1),
          key_starts(where, given.members.size() + 1) {
        fill_random(q.values, 1);
        fill_random(k.values, 2);
        fill_random(v.values, 3);
        std::vector<bool> exists(given.key_rows, false);
        for (std::size_t i = 0; i < given.members.size(); ++i) {
            const member& one = given.members[i];
            for (int key = 0; key < one.keys; ++key) exists[one.first_key + key] = true;
            key_lengths.values[i] = one.keys;
            query_starts.values[i] = one.first_query;
            query_starts.values[i + 1] = one.first_query + one.queries;
            key_starts.values[i] = one.first_key;
            key_starts.values[i + 1] = one.first_key + one.keys;
        }
        for (int row = 0; row < given.key_rows; ++row) {
            if (exists[row]) continue;
            for (int i = 0; i < given.key_heads * key_depth; ++i) {
                k.values[std::size_t(row) * given.key_heads * key_depth + i] = In(nothing);
            }
            for (int i = 0; i < given.key_heads * value_depth; ++i) {
                v.values[std::size_t(row) * given.key_heads * value_depth + i] = In(nothing);
            }
        }
    }

    template <class T>
    attention_view<T> view_of(T* pointer, int all_rows, int heads, int depth) const {
        const int batches = given.packed ? 1 : int(given.members.size());
        const int rows = all_rows / batches;
        return {pointer, {batches, heads, rows, depth}, {std::int64_t(rows) * heads * depth, depth, heads * depth}};
    }
    int rows_together() const { return given.query_rows / (given.packed ? 1 : int(given.members.size())); }

    template <class Kernel>
    typename Kernel::arguments arguments(decltype(Kernel::arguments::mask) mask = {},
                                         decltype(Kernel::arguments::score) score = {}, int sections = 0) {
        const auto rows_of = [&](buffer<float>& one) {
            return attention_rows{one.send(), std::int64_t(given.heads) * rows_together(), rows_together()};
        };
        const int members = int(given.members.size());
        const attention_lengths lengths =
            given.packed ? attention_lengths{0, 0, nullptr, query_starts.send(), key_starts.send()}
                         : attention_lengths{rows_together(), given.key_rows / members, key_lengths.send()};
        return {view_of<const In>(q.send(), given.query_rows, given.heads, key_depth),
                view_of<const In>(k.send(), given.key_rows, given.key_heads, key_depth),
                view_of<const In>(v.send(), given.key_rows, given.key_heads, value_depth),
                view_of<In>(out.send(), given.query_rows, given.heads, value_depth),
                {rows_of(log2_sums), view_of<float>(wide.send(), given.query_rows, given.heads, value_depth),
                 rows_of(largest), rows_of(sums)},
                mask,
                score,
                scale,
                factor_after(score, scale),
                {members, given.heads,
                 given.packed ? attention_order::packed_blocks(given.query_rows, members, Kernel::rows)
                              : (given.longest() + Kernel::rows - 1) / Kernel::rows,
                 sections},
                lengths,
                given.heads / given.key_heads,
                nullptr};
    }

    // Where a query's number and its row of O are.
    std::size_t number_at(int row, int head) const {
        return (std::size_t(row / rows_together()) * given.heads + head) * rows_together() + row % rows_together();
    }
    std::size_t row_at(int row, int head) const { return (std::size_t(row) * given.heads + head) * value_depth; }

    struct expected {
        std::vector<double> out;
        double log2_sum = -INFINITY;
    };
    using keep_function = std::function<bool(const attention_sequence&, int, int)>;
    using score_function = std::function<double(double)>;

    // A sink of minus infinity is none.
    expected attend(int number, int query, int head, const keep_function& keep, const score_function& score,
                    double sink = -INFINITY) const {
        const member& one = given.members[number];
        const attention_sequence sequence{number, head, one.queries, one.keys};
        const int key_head = head / (given.heads / given.key_heads);
        const auto key_row = [&](int key) { return std::size_t(one.first_key + key) * given.key_heads + key_head; };
        const std::size_t query_row = std::size_t(one.first_query + query) * given.heads + head;
        std::vector<double> scores(one.keys, -INFINITY);
        double most = sink;
        for (int key = 0; key < one.keys; ++key) {
            if (!keep(sequence, query, key)) continue;
            double dot = 0;
            for (int i = 0; i < key_depth; ++i) {
                dot +=
                    double(float(q.values[query_row * key_depth + i])) * float(k.values[key_row(key) * key_depth + i]);
            }
            scores[key] = score(dot * scale);
            most = std::fmax(most, scores[key]);
        }
        expected made{std::vector<double>(value_depth)};
        if (most == -INFINITY) return made;
        double sum = std::exp(sink - most);
        for (int key = 0; key < one.keys; ++key) {
            if (scores[key] == -INFINITY) continue;
            const double weight = std::exp(scores[key] - most);
            sum += weight;
            for (int i = 0; i < value_depth; ++i)
                made.out[i] += weight * float(v.values[key_row(key) * value_depth + i]);
        }
        for (double& x : made.out) x /= sum;
        made.log2_sum = (most + std::log(sum)) * 1.4426950408889634;
        return made;
    }

    // visit(expected, row, head) for each query of each member.
    template <class Visit>
    void each_query(const keep_function& keep, const score_function& score, const std::vector<float>& sinks,
                    Visit visit) const {
        for (int number = 0; number < int(given.members.size()); ++number) {
            for (int query = 0; query < given.members[number].queries; ++query) {
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
bool every_key(const attention_sequence&, int, int) {
    return true;
}

template <class Kernel, class In, class Mask = full_mask, class Score = plain_score>
void check_attention(int blocks, const sequences& given, int key_depth, int value_depth, Mask mask = {},
                     Score score = {}, double (*expected_score)(double) = unchanged, int sections = 0,
                     const std::vector<float>& sinks = {}) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.query_rows);
        CAPTURE(given.key_rows);
        tensors<In> there(where, given, key_depth, value_depth);
        auto arguments = there.template arguments<Kernel>(mask, score, sections);
        buffer<float> sink_values(where, sinks.size());
        sink_values.values = sinks;
        if (!sinks.empty()) arguments.sinks = sink_values.send();
        run<Kernel>(where, {blocks}, arguments, 2);
        there.out.fetch();
        there.log2_sums.fetch();
        double worst = 0, worst_log2 = 0;
        const auto keep = [&](const attention_sequence& s, int query, int key) { return mask.keep(s, query, key); };
        there.each_query(keep, expected_score, sinks, [&](const auto& right, int row, int head) {
            for (int i = 0; i < value_depth; ++i) {
                In& found = there.out.values[there.row_at(row, head) + i];
                note(worst, right.out[i], float(found));
                found = In(nothing);
            }
            note(worst_log2, right.log2_sum, there.log2_sums.values[there.number_at(row, head)]);
        });
        CHECK(worst <= 0.01);
        CHECK(worst_log2 <= 0.001);
        // What belongs to no member is as it was.
        for (const In& value : there.out.values) REQUIRE(std::isnan(float(value)));
    }
}

struct every_third : mask_without_shortcuts {
    IMBREX_FN bool keep(const attention_sequence& s, int query, int key) const {
        return (query + key + s.head) % 3 == 0;
    }
};

// The smallest shapes that have all of the kernel's parts.
constexpr attention_ampere_shape one_stage{.warps = 2, .columns = 32, .stages = 1};
constexpr attention_ampere_shape two_stages{.warps = 2, .columns = 32, .stages = 2, .keep_queries = true};
constexpr attention_ampere_shape tall{.warps = 2, .warp_rows = 32, .columns = 48, .stages = 1};

template <attention_ampere_shape Shape, class Mask = full_mask, class Score = plain_score,
          attention_result Result = attention_result::normalised>
struct small : attention_ampere<bf16, 64, 64, Mask, Score, Shape, Result> {};

}  // namespace

TEST_CASE("attention of every query to every key, of all depths") {
    const sequences few = sequences::batch(2, 1, 130, 150, {150, 70});
    check_attention<attention_ampere<bf16, 64, 64>, bf16>(3, few, 64, 64);
    check_attention<attention_ampere<fp16, 64, 64>, fp16>(3, few, 64, 64);
    check_attention<attention_ampere<bf16, 96, 96>, bf16>(2, few, 80, 80);
    check_attention<attention_ampere<fp16, 128, 128>, fp16>(3, few, 128, 128);
    check_attention<attention_ampere<bf16, 192, 128>, bf16>(3, few, 192, 128);
    check_attention<attention_ampere<bf16, 256, 256>, bf16>(3, few, 256, 256);
}

TEST_CASE("rows that begin at no multiple of 16 bytes, or of 4") {
    const sequences few = sequences::batch(3, 3, 40, 70, {70});
    check_attention<attention_ampere<bf16, 96, 96>, bf16>(2, few, 70, 90);
    check_attention<attention_ampere<fp16, 96, 96>, fp16>(2, few, 75, 67);
}

TEST_CASE("lengths of any kind, also of no keys and of one") {
    for (const int keys : {0, 1, 31, 32, 33, 100}) {
        const sequences given = sequences::batch(1, 1, 37, keys, {keys});
        check_attention<small<one_stage>, bf16>(1, given, 64, 64);
        check_attention<small<two_stages>, bf16>(2, given, 64, 64);
        check_attention<small<tall>, bf16>(1, given, 64, 64);
    }
    check_attention<small<two_stages>, bf16>(1, sequences::batch(2, 2, 1, 90, {90}), 64, 64);
    check_attention<small<one_stage>, bf16>(4, sequences::batch(4, 2, 50, 90, {90, 0, 1, 64}), 64, 64);
}

TEST_CASE("masks: causal, windows, chunks, two at once, one of one's own") {
    const sequences few = sequences::batch(2, 1, 100, 170, {170, 120});
    const sequences many_queries = sequences::batch(2, 2, 100, 40, {40});
    check_attention<small<one_stage, causal_mask>, bf16>(3, few, 64, 64, causal_mask{}, plain_score{}, unchanged, 1);
    check_attention<small<two_stages, causal_mask>, bf16>(3, few, 64, 64, causal_mask{}, plain_score{}, unchanged, 2);
    check_attention<small<one_stage, causal_mask>, bf16>(2, many_queries, 64, 64, causal_mask{});
    check_attention<small<two_stages, window_mask>, bf16>(2, few, 64, 64, window_mask{40, 0});
    check_attention<small<one_stage, window_mask>, bf16>(2, few, 64, 64, window_mask{20, 30});
    using chunks = both_masks<causal_mask, chunked_mask>;
    check_attention<small<two_stages, chunks>, bf16>(2, few, 64, 64, chunks{{}, {48}});
    check_attention<small<one_stage, every_third>, bf16>(2, few, 64, 64, every_third{});
}

TEST_CASE("scores bent by a cap, and sinks") {
    const sequences few = sequences::batch(2, 2, 70, 90, {90, 33});
    check_attention<small<two_stages, causal_mask, softcap>, bf16>(2, few, 64, 64, causal_mask{}, softcap{1.0f},
                                                                   [](double x) { return std::tanh(x); });
    check_attention<small<one_stage>, bf16>(2, few, 64, 64, full_mask{}, plain_score{}, unchanged, 0, {0.5f, 9.0f});
}

TEST_CASE("packed sequences, with NaN around them that stays there") {
    const sequences row = sequences::in_a_row(4, 2, {{70, 100}, {0, 30}, {1, 1}, {100, 64}, {33, 0}, {5, 70}});
    check_attention<small<one_stage, causal_mask>, bf16>(3, row, 64, 64, causal_mask{});
    check_attention<small<two_stages>, bf16>(2, row, 64, 64);
    check_attention<attention_ampere<bf16, 96, 96, causal_mask>, bf16>(3, row, 80, 80, causal_mask{});
}

TEST_CASE("parts of the keys merged one after the other are the whole; partial results tell their largest and sum") {
    using merging = small<two_stages, full_mask, plain_score, attention_result::merged>;
    using partial = small<one_stage, full_mask, plain_score, attention_result::partial>;
    const int queries = 50, keys = 100;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        tensors<bf16> there(where, sequences::batch(2, 1, queries, keys, {keys}), 64, 64);
        there.log2_sums.values.assign(there.log2_sums.values.size(), -INFINITY);
        auto arguments = there.arguments<merging>();
        const auto k = arguments.k, v = arguments.v;
        // The checker runs a kernel many times: results that change what is there are run once.
        for (const auto& [first, end] : {std::pair{0, 37}, std::pair{37, 100}}) {
            arguments.k.pointer = k.pointer + first * 64;
            arguments.v.pointer = v.pointer + first * 64;
            arguments.lengths = {queries, end - first};
            launch<merging>(where, {2}, arguments);
        }
        there.wide.fetch();
        there.log2_sums.fetch();
        double worst = 0, worst_log2 = 0;
        there.each_query(every_key, unchanged, {}, [&](const auto& right, int row, int head) {
            for (int i = 0; i < 64; ++i) note(worst, right.out[i], there.wide.values[there.row_at(row, head) + i]);
            note(worst_log2, right.log2_sum, there.log2_sums.values[there.number_at(row, head)]);
        });
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);

        run<partial>(where, {2}, there.arguments<partial>(), 2);
        there.wide.fetch();
        there.largest.fetch();
        there.sums.fetch();
        worst = worst_log2 = 0;
        there.each_query(every_key, unchanged, {}, [&](const auto& right, int row, int head) {
            const double sum = there.sums.values[there.number_at(row, head)];
            for (int i = 0; i < 64; ++i)
                note(worst, right.out[i], there.wide.values[there.row_at(row, head) + i] / sum);
            note(worst_log2, right.log2_sum, there.largest.values[there.number_at(row, head)] + std::log2(sum));
        });
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);
    }
}

#if !defined(__CUDACC__)
template <attention_ampere_shape Shape>
void check_schedules() {
    using kernel = attention_ampere<bf16, 32, 32, causal_mask, plain_score, Shape>;
    // The last ones have one tile of keys: no barrier stands between their queries.
    tensors<bf16> there(world::host, sequences::in_a_row(2, 1, {{70, 100}, {33, 40}, {20, 20}, {9, 30}, {16, 16}}), 32,
                        32);
    const auto arguments = there.arguments<kernel>(causal_mask{});
    check_synchronisation<kernel>("attention on sm_80", {2}, arguments);
}

TEST_CASE("attention on sm_80 is silent over 1,000 schedules, and each of its mutants is told") {
    check_schedules<one_stage>();
    check_schedules<two_stages>();
}
#endif
