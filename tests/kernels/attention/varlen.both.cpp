// Attention over sequences of different lengths: varlen, padded with anything, with sinks, in parts that are merged;
// against plain loops in double.
#include <imbrex/kernels/attention/hopper.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <limits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int head_dim = 64, heads = 4, kv_heads = 2;
constexpr float scale = 0.3f;
constexpr float nothing = std::numeric_limits<float>::quiet_NaN();

// Queries and keys [row, head, head_dim], and attention of one query to a range of keys, in double.
struct inputs {
    int seqlen_q, seqlen_k;
    std::vector<bf16> q, k, v;

    inputs(int seqlen_q, int seqlen_k) : seqlen_q(seqlen_q), seqlen_k(seqlen_k) {
        q.resize(std::size_t(seqlen_q) * heads * head_dim);
        k.resize(std::size_t(seqlen_k) * kv_heads * head_dim);
        v.resize(k.size());
        fill_random(q, 1);
        fill_random(k, 2);
        fill_random(v, 3);
    }

    struct expected {
        std::vector<double> out = std::vector<double>(head_dim);
        double lse2 = -INFINITY;
    };
    // `sees(key)` counts keys from the first of the range. A sink of -infinity has no effect.
    template <class Sees>
    expected attend(int query, int head, int first_key, int count, Sees sees, double sink = -INFINITY) const {
        const int kv_head = head / (heads / kv_heads);
        std::vector<double> scores(count, -INFINITY);
        double most = sink;
        for (int key = 0; key < count; ++key) {
            if (!sees(key)) continue;
            double dot = 0;
            for (int i = 0; i < head_dim; ++i) {
                dot += double(float(q[(std::size_t(query) * heads + head) * head_dim + i])) *
                       float(k[(std::size_t(first_key + key) * kv_heads + kv_head) * head_dim + i]);
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
            for (int i = 0; i < head_dim; ++i) {
                made.out[i] += weight * float(v[(std::size_t(first_key + key) * kv_heads + kv_head) * head_dim + i]);
            }
        }
        for (double& one : made.out) one /= sum;
        made.lse2 = (most + std::log(sum)) * 1.4426950408889634;
        return made;
    }
};

template <class T>
attention_view<T> view_of(T* pointer, int batches, int rows, int number_of_heads) {
    return {pointer,
            {batches, number_of_heads, rows, head_dim},
            {std::int64_t(rows) * number_of_heads * head_dim, head_dim, number_of_heads * head_dim}};
}

// All arrays in the memory of the world, for a batch of `batches` equal shapes (1 for varlen).
struct sent {
    inputs given;
    int batches, rows, key_rows;
    buffer<bf16> q, k, v, out;
    buffer<float> lse2, o_accum, row_max, row_sum;

    sent(world where, const inputs& from, int batches)
        : given(from),
          batches(batches),
          rows(from.seqlen_q / batches),
          key_rows(from.seqlen_k / batches),
          q(where, from.q.size()),
          k(where, from.k.size()),
          v(where, from.v.size()),
          out(where, from.q.size(), bf16(nothing)),
          lse2(where, std::size_t(from.seqlen_q) * heads, nothing),
          o_accum(where, from.q.size(), nothing),
          row_max(where, lse2.values.size(), nothing),
          row_sum(where, lse2.values.size(), nothing) {
        q.values = from.q;
        k.values = from.k;
        v.values = from.v;
    }

    template <class Kernel>
    typename Kernel::arguments arguments(attention_seqlens lengths, int members, int longest) {
        const auto out_view = view_of(out.upload(), batches, rows, heads);
        const auto rows_of = [&](buffer<float>& one) {
            return attention_row_view{one.upload(), std::int64_t(heads) * rows, rows};
        };
        return {make_tma_tensor<typename Kernel::q_tile>(view_of(q.upload(), batches, rows, heads)),
                make_tma_tensor<typename Kernel::k_tile>(view_of(k.upload(), batches, key_rows, kv_heads)),
                make_tma_tensor<typename Kernel::v_tile>(view_of(v.upload(), batches, key_rows, kv_heads)),
                make_tma_tensor<typename Kernel::out_tile>(out_view, tma_use::store),
                out_view,
                {rows_of(lse2), view_of(o_accum.upload(), batches, rows, heads), rows_of(row_max), rows_of(row_sum)},
                {},
                {},
                scale,
                scale_log2_after(score_mod::identity{}, scale),
                {members, heads,
                 lengths.varlen() ? attention_tile_scheduler::varlen_blocks(rows, members, Kernel::block_m)
                                  : (longest + Kernel::block_m - 1) / Kernel::block_m,
                 0},
                lengths,
                heads / kv_heads,
                nullptr,
                nullptr};
    }
    double lse2_at(int query, int head) const {
        return lse2.values[(std::size_t(query / rows) * heads + head) * rows + query % rows];
    }
    template <class Values>
    static double difference(const inputs::expected& right, const Values& values, int query, int head) {
        double worst = 0;
        for (int i = 0; i < head_dim; ++i) {
            const double found = static_cast<float>(values[(std::size_t(query) * heads + head) * head_dim + i]);
            const double error = std::abs(right.out[i] - found);
            worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
        }
        return worst;
    }
};

double log2_difference(double right, double found) {
    return right == found ? 0 : std::abs(right - found);
}

constexpr attention_shape small{.block_n = 64};

// Static scheduling, or dynamic with a tile counter.
std::vector<std::pair<world, bool>> worlds_and_ways() {
    std::vector<std::pair<world, bool>> all;
    for (const world where : worlds()) {
        all.emplace_back(where, false);
        all.emplace_back(where, true);
    }
    return all;
}

}  // namespace

TEST_CASE("computes causal varlen attention of any lengths, and writes nothing between sequences") {
    using kernel = attention_hopper<bf16, head_dim, head_dim, causal_mask, score_mod::identity, small>;
    const std::vector<int> cu_seqlens_q{0, 70, 70, 71, 271}, cu_seqlens_k{0, 100, 130, 131, 331};
    for (const auto& [where, drawn] : worlds_and_ways()) {
        CAPTURE(name_of(where));
        CAPTURE(drawn);
        inputs given(290, 350);
        // Behind the last sequence.
        for (std::size_t i = 331u * kv_heads * head_dim; i < given.v.size(); ++i)
            given.v[i] = given.k[i] = bf16(nothing);
        sent there(where, given, 1);
        buffer<int> q_starts(where, 5), k_starts(where, 5);
        q_starts.values = cu_seqlens_q;
        k_starts.values = cu_seqlens_k;
        auto arguments = there.arguments<kernel>({0, 0, nullptr, q_starts.upload(), k_starts.upload()}, 4, 200);
        buffer<int> counter(where, 1, 0);
        int* const zero = counter.upload();
        if (drawn) arguments.tile_counter = zero;
        run<kernel>(where, {3}, arguments, 4);
        counter.download();
        CHECK(counter.values[0] == 0);
        there.out.download();
        there.lse2.download();
        double worst = 0, worst_log2 = 0;
        for (int member = 0; member < 4; ++member) {
            const int seqlen_q = cu_seqlens_q[member + 1] - cu_seqlens_q[member];
            const int seqlen_k = cu_seqlens_k[member + 1] - cu_seqlens_k[member];
            for (int query = 0; query < seqlen_q; ++query) {
                for (int head = 0; head < heads; ++head) {
                    const int row = cu_seqlens_q[member] + query;
                    const auto right = given.attend(row, head, cu_seqlens_k[member], seqlen_k,
                                                    [&](int key) { return key <= query + seqlen_k - seqlen_q; });
                    worst = std::fmax(worst, sent::difference(right, there.out.values, row, head));
                    worst_log2 = std::fmax(worst_log2, log2_difference(right.lse2, there.lse2_at(row, head)));
                }
            }
        }
        CHECK(worst <= 0.01);
        CHECK(worst_log2 <= 0.001);
        for (std::size_t i = 271u * heads * head_dim; i < there.out.values.size(); ++i) {
            REQUIRE(std::isnan(static_cast<float>(there.out.values[i])));
        }
    }
}

TEST_CASE("accepts a padded batch with NaN behind the last keys, and attention sinks") {
    using kernel = attention_hopper<bf16, head_dim, head_dim, full_mask, score_mod::identity, small>;
    const int members = 3, seqlen_q = 66, seqlen_k = 130;
    const std::vector<int> lengths{130, 67, 0};
    const std::vector<float> sinks{0.5f, -3.0f, 9.0f, 0.0f};
    for (const bool with_sinks : {false, true}) {
        CAPTURE(with_sinks);
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            inputs given(members * seqlen_q, members * seqlen_k);
            for (int member = 0; member < members; ++member) {
                for (int key = lengths[member]; key < seqlen_k; ++key) {
                    for (int i = 0; i < kv_heads * head_dim; ++i) {
                        const std::size_t place = std::size_t(member * seqlen_k + key) * kv_heads * head_dim + i;
                        given.k[place] = given.v[place] = bf16(nothing);
                    }
                }
            }
            sent there(where, given, members);
            buffer<int> seqused_k(where, members);
            buffer<float> sink_values(where, heads);
            seqused_k.values = lengths;
            sink_values.values = sinks;
            auto arguments = there.arguments<kernel>({seqlen_q, seqlen_k, seqused_k.upload()}, members, seqlen_q);
            if (with_sinks) arguments.sinks = sink_values.upload();
            run<kernel>(where, {2}, arguments, 4);
            there.out.download();
            there.lse2.download();
            double worst = 0, worst_log2 = 0;
            for (int row = 0; row < members * seqlen_q; ++row) {
                const int member = row / seqlen_q;
                for (int head = 0; head < heads; ++head) {
                    const auto right = given.attend(
                        row, head, member * seqlen_k, lengths[member], [](int) { return true; },
                        with_sinks ? sinks[head] : -INFINITY);
                    worst = std::fmax(worst, sent::difference(right, there.out.values, row, head));
                    worst_log2 = std::fmax(worst_log2, log2_difference(right.lse2, there.lse2_at(row, head)));
                }
            }
            CHECK(worst <= 0.01);
            CHECK(worst_log2 <= 0.001);
        }
    }
}

TEST_CASE("varlen: merges parts of the keys to the full result; partial outputs have row_max and row_sum") {
    using merging = attention_hopper<bf16, head_dim, head_dim, full_mask, score_mod::identity, small,
                                     attention_output_mode::merged>;
    using partial = attention_hopper<bf16, head_dim, head_dim, full_mask, score_mod::identity, small,
                                     attention_output_mode::partial>;
    const int seqlen_q = 100, seqlen_k = 200;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const inputs given(seqlen_q, seqlen_k);
        sent there(where, given, 1);
        there.lse2.values.assign(there.lse2.values.size(), -INFINITY);
        auto arguments = there.arguments<merging>({seqlen_q, seqlen_k}, 1, seqlen_q);
        // Two parts, each a range of the same keys.
        for (const auto& [first, end] : {std::pair{0, 72}, std::pair{72, 200}}) {
            arguments.k = make_tma_tensor<merging::k_tile>(
                view_of(there.k.upload() + std::size_t(first) * kv_heads * head_dim, 1, end - first, kv_heads));
            arguments.v = make_tma_tensor<merging::v_tile>(
                view_of(there.v.upload() + std::size_t(first) * kv_heads * head_dim, 1, end - first, kv_heads));
            arguments.lengths = {seqlen_q, end - first};
            // The checker runs a kernel many times: outputs that are merged in place run once.
            launch<merging>(where, {2}, arguments);
        }
        there.o_accum.download();
        there.lse2.download();
        double worst = 0, worst_log2 = 0;
        for (int row = 0; row < seqlen_q; ++row) {
            for (int head = 0; head < heads; ++head) {
                const auto right = given.attend(row, head, 0, seqlen_k, [](int) { return true; });
                worst = std::fmax(worst, sent::difference(right, there.o_accum.values, row, head));
                worst_log2 = std::fmax(worst_log2, log2_difference(right.lse2, there.lse2_at(row, head)));
            }
        }
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);

        run<partial>(where, {2}, there.arguments<partial>({seqlen_q, seqlen_k}, 1, seqlen_q), 4);
        there.o_accum.download();
        there.row_max.download();
        there.row_sum.download();
        worst = worst_log2 = 0;
        for (int row = 0; row < seqlen_q; ++row) {
            for (int head = 0; head < heads; ++head) {
                auto right = given.attend(row, head, 0, seqlen_k, [](int) { return true; });
                const std::size_t place = std::size_t(head) * seqlen_q + row;
                const double sum = there.row_sum.values[place];
                worst_log2 =
                    std::fmax(worst_log2, log2_difference(right.lse2, there.row_max.values[place] + std::log2(sum)));
                for (double& one : right.out) one *= sum;
                worst = std::fmax(worst, sent::difference(right, there.o_accum.values, row, head) / sum);
            }
        }
        CHECK(worst <= 0.005);
        CHECK(worst_log2 <= 0.001);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("varlen attention has no hazard in any schedule, and the checker detects every mutation") {
    using kernel =
        attention_hopper<bf16, head_dim, head_dim, causal_mask, score_mod::identity, attention_shape{.block_n = 32}>;
    const inputs given(110, 135);
    sent there(world::host, given, 1);
    const std::vector<int> cu_seqlens_q{0, 70, 100, 110}, cu_seqlens_k{0, 75, 120, 135};
    const auto arguments = there.arguments<kernel>({0, 0, nullptr, cu_seqlens_q.data(), cu_seqlens_k.data()}, 3, 70);
    check_synchronisation<kernel>("attention, varlen", {2}, arguments);
}
#endif
