// An append to a paged cache on numbers of a seed, in memory of one world, and what loops in double find of it.
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
constexpr rotary_style half_split = rotary_style::half_split, interleaved = rotary_style::interleaved;

struct sequence {
    int length;  // new tokens included
    int added;
};

struct append_case {
    std::vector<sequence> sequences;
    bool packed = true;  // otherwise all have as many new tokens
    int heads = 4, key_heads = 2;
    int depth = 64, value_depth = 64;
    int page_rows = 16;
    int rotated = 64;
    rotary_style style = half_split;
    double base = 10000;
    queries with = queries::apart;
    scales scaled = scales::none;
    int gap = 0;     // elements between rows, and before the first
    int before = 0;  // packed rows that belong to no sequence
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
          per_sequence_(longest() / given.page_rows + 1),
          pages_(page_count() + 3),
          q(where, elements(members() * rows_, given.heads, given.depth)),
          q_out(where, q.values.size()),
          k(where, elements(members() * rows_, given.key_heads, given.depth)),
          v(where, elements(members() * rows_, given.key_heads, given.value_depth)),
          k_cache(where, elements(pages_ * given.page_rows, given.key_heads, given.depth)),
          v_cache(where, elements(pages_ * given.page_rows, given.key_heads, given.value_depth)),
          k_scales(where, static_cast<std::size_t>(pages_) * given.key_heads),
          v_scales(where, k_scales.values.size()),
          table(where, static_cast<std::size_t>(count_) * per_sequence_, -1),
          lengths(where, given.sequences.size()),
          starts(where, given.sequences.size() + 1),
          turns(where, std::max(given.rotated / 2, 1)) {
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
        if (given.rotated > 0) turns.values = frequencies().turns();
    }

    paged_append_problem<In, Cache> send() {
        paged_append_problem<In, Cache> p{
            .k = heads_second(spread<const In>(k.send(), members(), rows_, given_.key_heads, given_.depth, given_.gap)),
            .v = heads_second(
                spread<const In>(v.send(), members(), rows_, given_.key_heads, given_.value_depth, given_.gap)),
            .k_cache = cache_view(k_cache.send(), given_.depth),
            .v_cache = cache_view(v_cache.send(), given_.value_depth),
            .k_scales = sent(k_scales),
            .v_scales = sent(v_scales),
            .pages = {table.send(), per_sequence_},
            .key_lengths = lengths.send()};
        if (given_.packed) p.packed = {count_, starts.send(), nullptr};
        if (given_.rotated > 0) p.rotary = frequencies().embedding(turns.send(), given_.style);
        if (given_.with != queries::none) {
            In* const from = q.send();
            In* const to = given_.with == queries::in_place ? from : q_out.send();
            p.q = heads_second(spread<const In>(from, members(), rows_, given_.heads, given_.depth, given_.gap));
            p.q_out = heads_second(spread(to, members(), rows_, given_.heads, given_.depth, given_.gap));
        }
        return p;
    }

    // Launches, and compares all that may have been written.
    void check(world where, const paged_append_problem<In, Cache>& p) {
        auto wanted_k = range_of(k_cache.values), wanted_v = range_of(v_cache.values);
        auto& out = given_.with == queries::in_place ? q : q_out;
        auto wanted_q = range_of(out.values);
        expect(wanted_q, wanted_k, wanted_v);
        launch(where, p);
        k_cache.fetch();
        v_cache.fetch();
        if (given_.with != queries::none) out.fetch();
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
    buffer<std::uint64_t> turns;

  private:
    // The lowest and the highest value that may be found; bits that must be found, where the two have the same.
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
    // Only pages that new tokens go to are there.
    static int first_page(const sequence& one, int page_rows) {
        return std::max(one.length - one.added, 0) / page_rows;
    }
    int page_count() const {
        int all = 0;
        for (const sequence& one : given_.sequences) {
            const int end = (one.length + given_.page_rows - 1) / given_.page_rows;
            if (one.added > 0) all += std::max(0, end - first_page(one, given_.page_rows));
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
            const int end = (one.length + given_.page_rows - 1) / given_.page_rows;
            for (int page = first_page(one, given_.page_rows); one.added > 0 && page < end; ++page) {
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
        return spread(pointer, pages_, given_.key_heads, given_.page_rows, columns, given_.gap);
    }
    rotary_frequencies frequencies() const {
        rotary_frequencies made{.base = given_.base, .columns = given_.rotated};
        if (given_.base > 100000)
            made.scaling = rotary_yarn{.factor = 4, .original_context = 8192, .attention_factor = 1.2};
        return made;
    }
    cache_scales sent(buffer<float>& there) {
        if (given_.scaled == scales::none) return {};
        const float* const pointer = there.send();
        if (given_.scaled == scales::of_all) return {pointer, 0, 0};
        return given_.scaled == scales::of_heads ? scales_of_heads(pointer)
                                                 : scales_of_pages(pointer, given_.key_heads);
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
                return there.values[page * given_.key_heads + head];
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
    // What a number may be rounded to that was computed in fp32.
    template <class T>
    static range<T> rounded(double value, double error) {
        return {convert<T>(value - error), convert<T>(value + error)};
    }

    // One head of one token, from `from` on, rotated and divided by the scale.
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
        const std::vector<double> angles = frequencies().in_double();
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
            return (((static_cast<std::size_t>(page) * given_.key_heads + head) * given_.page_rows + row) *
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
                    table.values[static_cast<std::size_t>(i) * per_sequence_ + position / given_.page_rows];
                const int page_row = position % given_.page_rows;
                for (int head = 0; head < given_.key_heads; ++head) {
                    expect_row(&k.values[index(row, given_.key_heads, head, given_.depth)],
                               &wanted_k[cache_index(page, head, page_row, given_.depth)], given_.depth, position,
                               scale_of(k_scales, page, head), true);
                    expect_row(&v.values[index(row, given_.key_heads, head, given_.value_depth)],
                               &wanted_v[cache_index(page, head, page_row, given_.value_depth)], given_.value_depth,
                               position, scale_of(v_scales, page, head), false);
                }
                for (int head = 0; head < given_.heads && given_.with != queries::none; ++head) {
                    const std::size_t at = index(row, given_.heads, head, given_.depth);
                    expect_row(&q.values[at], &wanted_q[at], given_.depth, position, 1, true);
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
        CAPTURE(given.depth);
        CAPTURE(given.rotated);
        CAPTURE(given.page_rows);
        CAPTURE(static_cast<int>(given.style));
        for (const bool early : {false, true}) {
            CAPTURE(early);
            append_trial<In, Cache> there(where, given, seed);
            paged_append_problem<In, Cache> problem = there.send();
            problem.early = early;
            there.check(where, problem);
        }
    }
}

}  // namespace imbrex_test
