// A random paged_append problem in the memory of one world, and its reference in double.
#pragma once

#include <imbrex/kernels/paged_append.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace imbrex_test {

using namespace imbrex;

enum class queries { none, in_place, apart };
enum class scales { none, of_all, of_heads, of_pages };
constexpr rope_style half_split = rope_style::half_split, interleaved = rope_style::interleaved;

struct sequence {
    int length;  // new tokens included
    int added;
};

struct append_case {
    std::vector<sequence> sequences;
    bool packed = true;  // varlen; otherwise all sequences have the same number of new tokens
    int heads = 4, kv_heads = 2;
    int head_dim = 64, head_dim_v = 64;
    int page_size = 16;
    int rotated = 64;
    rope_style style = half_split;
    double theta = 10000;
    queries with = queries::apart;
    scales scaled = scales::none;
    int gap = 0;     // elements between rows, and before the first
    int before = 0;  // varlen rows that belong to no sequence
    int behind = 0;
};

// [first, second, third, columns], each row followed by a gap.
template <class T>
attention_view<T> spread(T* pointer, std::int64_t first, std::int64_t second, std::int64_t third, std::int64_t columns,
                         int gap) {
    const std::int64_t row = columns + gap;
    return {pointer + gap, {first, second, third, columns}, {second * third * row, third * row, row}};
}

template <class In, class Cache>
class append_trial {
  public:
    append_trial(world where, const append_case& given, std::uint32_t seed)
        : given_(given),
          random_(seed),
          count_(static_cast<int>(given.sequences.size())),
          rows_(row_count()),
          per_sequence_(longest() / given.page_size + 1),
          pages_(page_count() + 3),
          q(where, elements(members() * rows_, given.heads, given.head_dim)),
          q_out(where, q.values.size()),
          k(where, elements(members() * rows_, given.kv_heads, given.head_dim)),
          v(where, elements(members() * rows_, given.kv_heads, given.head_dim_v)),
          k_cache(where, elements(pages_ * given.page_size, given.kv_heads, given.head_dim)),
          v_cache(where, elements(pages_ * given.page_size, given.kv_heads, given.head_dim_v)),
          k_scales(where, static_cast<std::size_t>(pages_) * given.kv_heads),
          v_scales(where, k_scales.values.size()),
          table(where, static_cast<std::size_t>(count_) * per_sequence_, -1),
          lengths(where, given.sequences.size()),
          starts(where, given.sequences.size() + 1),
          inv_freq(where, std::max(given.rotated / 2, 1)) {
        fill_random(q.values, seed + 1, -3, 3);
        fill_random(k.values, seed + 2, -3, 3);
        fill_random(v.values, seed + 3, -3, 3);
        fill_random(k_scales.values, seed + 4, 0.004f, 0.1f);
        fill_random(v_scales.values, seed + 5, 0.004f, 0.1f);
        for (auto* cache : {&k_cache.values, &v_cache.values}) {
            for (Cache& one : *cache) set_bits(one, static_cast<std::uint32_t>(random_()));
        }
        for (In& one : q_out.values) set_bits(one, static_cast<std::uint32_t>(random_()));
        deal_pages();
        starts.values[0] = given.before;
        for (int i = 0; i < count_; ++i) {
            lengths.values[i] = given.sequences[i].length;
            starts.values[i + 1] = starts.values[i] + given.sequences[i].added;
        }
        if (given.rotated > 0) inv_freq.values = frequencies().fixed_point_inv_freq();
    }

    paged_append_problem<In, Cache> upload() {
        paged_append_problem<In, Cache> p{
            .k = heads_second(
                spread<const In>(k.upload(), members(), rows_, given_.kv_heads, given_.head_dim, given_.gap)),
            .v = heads_second(
                spread<const In>(v.upload(), members(), rows_, given_.kv_heads, given_.head_dim_v, given_.gap)),
            .k_cache = cache_view(k_cache.upload(), given_.head_dim),
            .v_cache = cache_view(v_cache.upload(), given_.head_dim_v),
            .k_scales = sent(k_scales),
            .v_scales = sent(v_scales),
            .paged_kv = {table.upload(), per_sequence_},
            .seqused_k = lengths.upload()};
        if (given_.packed) p.varlen = {count_, starts.upload(), nullptr};
        if (given_.rotated > 0) p.rope = frequencies().embedding(inv_freq.upload(), given_.style);
        if (given_.with != queries::none) {
            In* const from = q.upload();
            In* const to = given_.with == queries::in_place ? from : q_out.upload();
            p.q = heads_second(spread<const In>(from, members(), rows_, given_.heads, given_.head_dim, given_.gap));
            p.q_out = heads_second(spread(to, members(), rows_, given_.heads, given_.head_dim, given_.gap));
        }
        return p;
    }

    // Launches, and checks all memory that may have been written.
    void check(world where, const paged_append_problem<In, Cache>& p) {
        auto wanted_k = range_of(k_cache.values), wanted_v = range_of(v_cache.values);
        auto& out = given_.with == queries::in_place ? q : q_out;
        auto wanted_q = range_of(out.values);
        expect(wanted_q, wanted_k, wanted_v);
        launch(where, p);
        k_cache.download();
        v_cache.download();
        if (given_.with != queries::none) out.download();
        CHECK(wrong_in(k_cache.values, wanted_k) == 0);
        CHECK(wrong_in(v_cache.values, wanted_v) == 0);
        CHECK(wrong_in(out.values, wanted_q) == 0);
    }

  private:
    append_case given_;
    std::mt19937 random_;
    int count_;
    int rows_;
    int per_sequence_;
    int pages_;

  public:
    buffer<In> q, q_out, k, v;
    buffer<Cache> k_cache, v_cache;
    buffer<float> k_scales, v_scales;
    buffer<int> table, lengths, starts;
    buffer<std::uint64_t> inv_freq;

  private:
    // Lowest and highest allowed value; exact bits where both are equal.
    template <class T>
    struct range {
        T low, high;
    };

    int members() const { return given_.packed ? 1 : count_; }
    int row_count() const {
        if (!given_.packed) return given_.sequences.front().added;
        int all = given_.before + given_.behind;
        for (const sequence& one : given_.sequences) all += one.added;
        return all;
    }
    int longest() const {
        int most = 0;
        for (const sequence& one : given_.sequences) most = std::max(most, one.length);
        return most;
    }
    // Only pages with new tokens are allocated.
    static int first_page(const sequence& one, int page_size) {
        return std::max(one.length - one.added, 0) / page_size;
    }
    int page_count() const {
        int all = 0;
        for (const sequence& one : given_.sequences) {
            const int end = (one.length + given_.page_size - 1) / given_.page_size;
            if (one.added > 0) all += std::max(0, end - first_page(one, given_.page_size));
        }
        return all;
    }
    std::size_t elements(std::int64_t rows, std::int64_t heads, std::int64_t columns) const {
        return static_cast<std::size_t>(rows * heads * (columns + given_.gap) + given_.gap);
    }
    void deal_pages() {
        std::vector<int> order(static_cast<std::size_t>(pages_));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random_);
        int next = 0;
        for (int i = 0; i < count_; ++i) {
            const sequence& one = given_.sequences[i];
            const int end = (one.length + given_.page_size - 1) / given_.page_size;
            for (int page = first_page(one, given_.page_size); one.added > 0 && page < end; ++page) {
                table.values[static_cast<std::size_t>(i) * per_sequence_ + page] = order[next++];
            }
        }
    }

    template <class T>
    static attention_view<T> heads_second(const attention_view<T>& view) {
        return {view.pointer,
                {view.extents[0], view.extents[2], view.extents[1], view.extents[3]},
                {view.strides[0], view.strides[2], view.strides[1]}};
    }
    attention_view<Cache> cache_view(Cache* pointer, int columns) const {
        return spread(pointer, pages_, given_.kv_heads, given_.page_size, columns, given_.gap);
    }
    rope_frequencies frequencies() const {
        rope_frequencies made{.theta = given_.theta, .rotary_dim = given_.rotated};
        if (given_.theta > 100000)
            made.scaling = rope_yarn{.factor = 4, .original_max_position_embeddings = 8192, .attention_factor = 1.2};
        return made;
    }
    kv_cache_scales sent(buffer<float>& there) {
        if (given_.scaled == scales::none) return {};
        const float* const pointer = there.upload();
        if (given_.scaled == scales::of_all) return {pointer, 0, 0};
        return given_.scaled == scales::of_heads ? kv_scales_per_head(pointer)
                                                 : kv_scales_per_page(pointer, given_.kv_heads);
    }
    float scale_of(const buffer<float>& there, int page, int head) const {
        switch (given_.scaled) {
            case scales::none:
                return 1;
            case scales::of_all:
                return there.values[0];
            case scales::of_heads:
                return there.values[head];
            default:
                return there.values[page * given_.kv_heads + head];
        }
    }

    template <class T>
    static void set_bits(T& one, std::uint32_t bits) {
        std::memcpy(static_cast<void*>(&one), &bits, sizeof one);
    }
    template <class T>
    static std::vector<range<T>> range_of(const std::vector<T>& values) {
        std::vector<range<T>> all;
        for (const T& value : values) all.push_back({value, value});
        return all;
    }
    template <class T>
    static int wrong_in(const std::vector<T>& found, const std::vector<range<T>>& wanted) {
        int wrong = 0;
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (std::memcmp(&found[i], &wanted[i].low, sizeof(T)) == 0) continue;
            const double value = convert<double>(found[i]);
            wrong += !(value >= convert<double>(wanted[i].low) && value <= convert<double>(wanted[i].high));
        }
        return wrong;
    }
    // The range of roundings of a value that was computed in fp32.
    template <class T>
    static range<T> rounded(double value, double error) {
        return {convert<T>(value - error), convert<T>(value + error)};
    }

    // Reference of one head of one token, from `from` on: rotated and divided by the scale.
    template <class T>
    void expect_row(const In* from, range<T>* to, int columns, int position, float scale, bool rotated) const {
        const auto at = [&](int column) { return convert<double>(from[column]); };
        for (int column = 0; column < columns; ++column) {
            if constexpr (std::is_same_v<T, In>) {
                to[column] = {from[column], from[column]};
            } else {
                const T exact = convert<T>(convert<float>(from[column]) * (1.0f / scale));
                to[column] = {exact, exact};
            }
        }
        if (!rotated || given_.rotated == 0) return;
        const int pairs = given_.rotated / 2;
        const std::vector<double> angles = frequencies().inv_freq_double();
        const double factor = frequencies().attention_factor();
        for (int i = 0; i < pairs; ++i) {
            const int x = given_.style == half_split ? i : 2 * i;
            const int y = given_.style == half_split ? i + pairs : 2 * i + 1;
            const double angle = position * angles[i];
            const double cosine = factor * std::cos(angle) / scale, sine = factor * std::sin(angle) / scale;
            const double error = (std::fabs(at(x)) + std::fabs(at(y))) * 4e-7 / scale;
            to[x] = rounded<T>(at(x) * cosine - at(y) * sine, error);
            to[y] = rounded<T>(at(y) * cosine + at(x) * sine, error);
        }
    }

    void expect(std::vector<range<In>>& wanted_q, std::vector<range<Cache>>& wanted_k,
                std::vector<range<Cache>>& wanted_v) const {
        const auto cache_index = [&](int page, int head, int row, int columns) {
            return (((static_cast<std::size_t>(page) * given_.kv_heads + head) * given_.page_size + row) *
                    (columns + given_.gap)) +
                   given_.gap;
        };
        const auto index = [&](int row, int heads, int head, int columns) {
            return (static_cast<std::size_t>(row) * heads + head) * (columns + given_.gap) + given_.gap;
        };
        int row = given_.packed ? given_.before : 0;
        for (int i = 0; i < count_; ++i) {
            const sequence& one = given_.sequences[i];
            for (int j = 0; j < one.added; ++j, ++row) {
                const int position = one.length - one.added + j;
                if (position < 0) continue;
                const int page =
                    table.values[static_cast<std::size_t>(i) * per_sequence_ + position / given_.page_size];
                const int page_row = position % given_.page_size;
                for (int head = 0; head < given_.kv_heads; ++head) {
                    expect_row(&k.values[index(row, given_.kv_heads, head, given_.head_dim)],
                               &wanted_k[cache_index(page, head, page_row, given_.head_dim)], given_.head_dim, position,
                               scale_of(k_scales, page, head), true);
                    expect_row(&v.values[index(row, given_.kv_heads, head, given_.head_dim_v)],
                               &wanted_v[cache_index(page, head, page_row, given_.head_dim_v)], given_.head_dim_v,
                               position, scale_of(v_scales, page, head), false);
                }
                for (int head = 0; head < given_.heads && given_.with != queries::none; ++head) {
                    const std::size_t at = index(row, given_.heads, head, given_.head_dim);
                    expect_row(&q.values[at], &wanted_q[at], given_.head_dim, position, 1, true);
                }
            }
        }
    }

    void launch(world where, const paged_append_problem<In, Cache>& p) const {
        paged_append<In, Cache>::launch(where, p);
#if defined(__CUDACC__)
        imbrex::detail::require_success(cudaDeviceSynchronize(), "append");
#endif
    }
};

template <class In, class Cache = In>
void check_append(const append_case& given, std::uint32_t seed = 1) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.head_dim);
        CAPTURE(given.rotated);
        CAPTURE(given.page_size);
        CAPTURE(static_cast<int>(given.style));
        for (const bool early : {false, true}) {
            CAPTURE(early);
            append_trial<In, Cache> there(where, given, seed);
            paged_append_problem<In, Cache> problem = there.upload();
            problem.pdl_prefetch = early;
            there.check(where, problem);
        }
    }
}

}  // namespace imbrex_test
