// Attention of sequences that are not all alike: packed one behind the other, padded with anything, with sinks, in parts that are
// merged; against plain loops in double.
#include <imbrex/kernels/attention/hopper.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <limits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int depth = 64, heads = 4, key_heads = 2;
constexpr float scale = 0.3f;
constexpr float nothing = std::numeric_limits<float>::quiet_NaN();

// Queries and keys [row, head, depth], and attention of one query to a range of keys, in double.
struct inputs {
    int queries, keys;
    std::vector<bf16> q, k, v;

    inputs(int queries, int keys) : queries(queries), keys(keys) {
        q.resize(std::size_t(queries) * heads * depth);
        k.resize(std::size_t(keys) * key_heads * depth);
        v.resize(k.size());
        fill_random(q, 1);
        fill_random(k, 2);
        fill_random(v, 3);
    }

    struct expected {
        std::vector<double> out = std::vector<double>(depth);
        double log2_sum = -INFINITY;
    };
    // `sees(key)` counts keys from the first of the range. A sink of minus infinity is none.
    template <class Sees>
    expected attend(int query, int head, int first_key, int count, Sees sees, double sink = -INFINITY) const {
        const int key_head = head / (heads / key_heads);
        std::vector<double> scores(count, -INFINITY);
        double most = sink;
        for (int key = 0; key < count; ++key) {
            if (!sees(key)) continue;
            double dot = 0;
            for (int i = 0; i < depth; ++i) {
                dot += double(float(q[(std::size_t(query) * heads + head) * depth + i])) *
                       float(k[(std::size_t(first_key + key) * key_heads + key_head) * depth + i]);
            }
            scores[key] = dot * scale;
            most = std::fmax(most, scores[key]);
        }
        expected made;
        if (most == -INFINITY) return made;
        double sum = std::exp(sink - most);
        for (int key = 0; key < count; ++key) {
            if (scores[key] == -INFINITY) continue;
            const double weight = std::exp(scores[key] - most);
            sum += weight;
            for (int i = 0; i < depth; ++i) {
                made.out[i] += weight * float(v[(std::size_t(first_key + key) * key_heads + key_head) * depth + i]);
            }
        }
        for (double& one : made.out) one /= sum;
        made.log2_sum = (most + std::log(sum)) * 1.4426950408889634;
        return made;
    }
};

template <class T>
attention_view<T> view_of(T* pointer, int batches, int rows, int number_of_heads) {
    return {pointer,
            {batches, number_of_heads, rows, depth},
            {std::int64_t(rows) * number_of_heads * depth, depth, number_of_heads * depth}};
}

// Everything on the side of the world, for `batches` members of equal shape (one, if packed).
struct sent {
    inputs given;
    int batches, rows, key_rows;
    buffer<bf16> q, k, v, out;
    buffer<float> log2_sums, wide, largest, sums;

    sent(world where, const inputs& from, int batches)
        : given(from),
          batches(batches),
          rows(from.queries / batches),
          key_rows(from.keys / batches),
          q(where, from.q.size()),
          k(where, from.k.size()),
          v(where, from.v.size()),
          out(where, from.q.size(), bf16(nothing)),
          log2_sums(where, std::size_t(from.queries) * heads, nothing),
          wide(where, from.q.size(), nothing),
          largest(where, log2_sums.values.size(), nothing),
          sums(where, log2_sums.values.size(), nothing) {
        q.values = from.q;
        k.values = from.k;
        v.values = from.v;
    }

    template <class Kernel>
    typename Kernel::arguments arguments(attention_lengths lengths, int members, int longest) {
        const auto out_view = view_of(out.send(), batches, rows, heads);
        const auto rows_of = [&](buffer<float>& one) {
            return attention_rows{one.send(), std::int64_t(heads) * rows, rows};
        };
        return {tensor_of<typename Kernel::q_tile>(view_of(q.send(), batches, rows, heads)),
                tensor_of<typename Kernel::k_tile>(view_of(k.send(), batches, key_rows, key_heads)),
                tensor_of<typename Kernel::v_tile>(view_of(v.send(), batches, key_rows, key_heads)),
                tensor_of<typename Kernel::out_tile>(out_view, tensor_use::store),
                out_view,
                {rows_of(log2_sums), view_of(wide.send(), batches, rows, heads), rows_of(largest), rows_of(sums)},
                {},
                {},
                scale,
                factor_after(plain_score{}, scale),
                {members, heads,
                 lengths.packed() ? attention_order::packed_blocks(rows, members, Kernel::rows)
                                  : (longest + Kernel::rows - 1) / Kernel::rows,
                 0},
                lengths,
                heads / key_heads,
                nullptr,
                nullptr};
    }
    double log2_sum_at(int query, int head) const {
        return log2_sums.values[(std::size_t(query / rows) * heads + head) * rows + query % rows];
    }
    template <class Values>
    static double difference(const inputs::expected& right, const Values& values, int query, int head) {
        double worst = 0;
        for (int i = 0; i < depth; ++i) {
            const double found = static_cast<float>(values[(std::size_t(query) * heads + head) * depth + i]);
            const double error = std::abs(right.out[i] - found);
            worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
        }
        return worst;
    }
};

double log2_difference(double right, double found) {
    return right == found ? 0 : std::abs(right - found);
}

constexpr attention_shape small{.columns = 64};

// Blocks take their work in turn, or draw it from a counter.
std::vector<std::pair<world, bool>> worlds_and_ways() {
    std::vector<std::pair<world, bool>> all;
    for (const world where : worlds()) {
        all.emplace_back(where, false);
        all.emplace_back(where, true);
    }
    return all;
}

}  // namespace

TEST_CASE("packed sequences of any lengths, causal, with nothing written between") {
    using kernel = attention_hopper<bf16, depth, depth, causal_mask, plain_score, small>;
    const std::vector<int> query_starts{0, 70, 70, 71, 271}, key_starts{0, 100, 130, 131, 331};
    for (const auto& [where, drawn] : worlds_and_ways()) {
        CAPTURE(name_of(where));
        CAPTURE(drawn);
        inputs given(290, 350);
        // Behind the last sequence.
        for (std::size_t i = 331u * key_heads * depth; i < given.v.size(); ++i) given.v[i] = given.k[i] = bf16(nothing);
        sent there(where, given, 1);
        buffer<int> q_starts(where, 5), k_starts(where, 5);
        q_starts.values = query_starts;
        k_starts.values = key_starts;
        auto arguments = there.arguments<kernel>({0, 0, nullptr, q_starts.send(), k_starts.send()}, 4, 200);
        buffer<int> counter(where, 1, 0);
        int* const zero = counter.send();
        if (drawn) arguments.counter = zero;
        run<kernel>(where, {3}, arguments, 4);
        counter.fetch();
        CHECK(counter.values[0] == 0);
        there.out.fetch();
        there.log2_sums.fetch();
        double worst = 0, worst_log2 = 0;
        for (int member = 0; member < 4; ++member) {
            const int queries = query_starts[member + 1] - query_starts[member];
            const int keys = key_starts[member + 1] - key_starts[member];
            for (int query = 0; query < queries; ++query) {
                for (int head = 0; head < heads; ++head) {
                    const int row = query_starts[member] + query;
                    const auto right = given.attend(row, head, key_starts[member], keys,
                                                    [&](int key) { return key <= query + keys - queries; });
                    worst = std::fmax(worst, sent::difference(right, there.out.values, row, head));
                    worst_log2 = std::fmax(worst_log2, log2_difference(right.log2_sum, there.log2_sum_at(row, head)));
                }
            }
        }
        CHECK(worst <= 0.01);
        CHECK(worst_log2 <= 0.001);
        for (std::size_t i = 271u * heads * depth; i < there.out.values.size(); ++i) {
            REQUIRE(std::isnan(static_cast<float>(there.out.values[i])));
        }
    }
}

TEST_CASE("a padded batch, NaN behind the last keys, and sinks") {
    using kernel = attention_hopper<bf16, depth, depth, full_mask, plain_score, small>;
    const int members = 3, queries = 66, keys = 130;
    const std::vector<int> lengths{130, 67, 0};
    const std::vector<float> sinks{0.5f, -3.0f, 9.0f, 0.0f};
    for (const bool with_sinks : {false, true}) {
        CAPTURE(with_sinks);
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            inputs given(members * queries, members * keys);
            for (int member = 0; member < members; ++member) {
                for (int key = lengths[member]; key < keys; ++key) {
                    for (int i = 0; i < key_heads * depth; ++i) {
                        const std::size_t place = std::size_t(member * keys + key) * key_heads * depth + i;
                        given.k[place] = given.v[place] = bf16(nothing);
                    }
                }
            }
            sent there(where, given, members);
            buffer<int> key_lengths(where, members);
            buffer<float> sink_values(where, heads);
            key_lengths.values = lengths;
            sink_values.values = sinks;
            auto arguments = there.arguments<kernel>({queries, keys, key_lengths.send()}, members, queries);
            if (with_sinks) arguments.sinks = sink_values.send();
            run<kernel>(where, {2}, arguments, 4);
            there.out.fetch();
            there.log2_sums.fetch();
            double worst = 0, worst_log2 = 0;
            for (int row = 0; row < members * queries; ++row) {
                const int member = row / queries;
                for (int head = 0; head < heads; ++head) {
                    const auto right = given.attend(
                        row, head, member * keys, lengths[member], [](int) { return true; },
                        with_sinks ? sinks[head] : -INFINITY);
                    worst = std::fmax(worst, sent::difference(right, there.out.values, row, head));
                    worst_log2 = std::fmax(worst_log2, log2_difference(right.log2_sum, there.log2_sum_at(row, head)));
                }
            }
            CHECK(worst <= 0.01);
            CHECK(worst_log2 <= 0.001);
        }
    }
}

TEST_CASE("parts of the keys merged one after the other are the whole; partial results tell their largest and sum") {
    using merging = attention_hopper<bf16, depth, depth, full_mask, plain_score, small, attention_result::merged>;
    using partial = attention_hopper<bf16, depth, depth, full_mask, plain_score, small, attention_result::partial>;
    const int queries = 100, keys = 200;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const inputs given(queries, keys);
        sent there(where, given, 1);
        there.log2_sums.values.assign(there.log2_sums.values.size(), -INFINITY);
        auto arguments = there.arguments<merging>({queries, keys}, 1, queries);
        // Two parts, each a range of the same keys.
        for (const auto& [first, end] : {std::pair{0, 72}, std::pair{72, 200}}) {
            arguments.k = tensor_of<merging::k_tile>(
                view_of(there.k.send() + std::size_t(first) * key_heads * depth, 1, end - first, key_heads));
            arguments.v = tensor_of<merging::v_tile>(
                view_of(there.v.send() + std::size_t(first) * key_heads * depth, 1, end - first, key_heads));
            arguments.lengths = {queries, end - first};
            // The checker runs a kernel many times: results that change what is there are run once.
            launch<merging>(where, {2}, arguments);
        }
        there.wide.fetch();
        there.log2_sums.fetch();
        double worst = 0, worst_log2 = 0;
        for (int row = 0; row < queries; ++row) {
            for (int head = 0; head < heads; ++head) {
                const auto right = given.attend(row, head, 0, keys, [](int) { return true; });
                worst = std::fmax(worst, sent::difference(right, there.wide.values, row, head));
                worst_log2 = std::fmax(worst_log2, log2_difference(right.log2_sum, there.log2_sum_at(row, head)));
            }
        }
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);

        run<partial>(where, {2}, there.arguments<partial>({queries, keys}, 1, queries), 4);
        there.wide.fetch();
        there.largest.fetch();
        there.sums.fetch();
        worst = worst_log2 = 0;
        for (int row = 0; row < queries; ++row) {
            for (int head = 0; head < heads; ++head) {
                auto right = given.attend(row, head, 0, keys, [](int) { return true; });
                const std::size_t place = std::size_t(head) * queries + row;
                const double sum = there.sums.values[place];
                worst_log2 = std::fmax(worst_log2,
                                       log2_difference(right.log2_sum, there.largest.values[place] + std::log2(sum)));
                for (double& one : right.out) one *= sum;
                worst = std::fmax(worst, sent::difference(right, there.wide.values, row, head) / sum);
            }
        }
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("attention of packed sequences is silent over 1,000 schedules, and each of its mutants is told") {
    using kernel = attention_hopper<bf16, depth, depth, causal_mask, plain_score, attention_shape{.columns = 32}>;
    const inputs given(110, 135);
    sent there(world::host, given, 1);
    const std::vector<int> query_starts{0, 70, 100, 110}, key_starts{0, 75, 120, 135};
    const auto arguments = there.arguments<kernel>({0, 0, nullptr, query_starts.data(), key_starts.data()}, 3, 70);
    check_synchronisation<kernel>("attention, packed", {2}, arguments);
}
#endif
