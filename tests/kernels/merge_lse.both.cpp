// LSE merge: clear, merge, finish and downconvert, against loops in double: normalised and partial operands, ragged
// rows with any alignment, empty rows, sinks, in place. Bits where they are guaranteed; gaps stay unchanged.
#include <imbrex/kernels/merge_lse.hpp>

#include "kernels/elementwise.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

// Rows of [batch, query, head, column], `gap` elements behind each, `before` in front of all; and row values of [batch,
// head, query].
struct result_shape {
    int batches = 1, seqlen_q = 1, heads = 1, columns = 1;
    int gap = 0, before = 0;

    int rows() const { return batches * seqlen_q * heads; }
    std::int64_t head_stride() const { return columns + gap; }
    std::int64_t query_stride() const { return heads * head_stride() + gap; }
    std::int64_t batch_stride() const { return seqlen_q * query_stride() + gap; }
    std::size_t elements() const { return before + batches * batch_stride(); }
    std::size_t index(int row, int column) const {
        const int batch = row / heads / seqlen_q, query = row / heads % seqlen_q;
        return before + batch * batch_stride() + query * query_stride() + row % heads * head_stride() + column;
    }
    template <class T>
    attention_view<T> view(T* pointer) const {
        return {pointer + before, {batches, heads, seqlen_q, columns}, {batch_stride(), head_stride(), query_stride()}};
    }

    std::int64_t numbers_stride() const { return seqlen_q + gap; }
    std::size_t numbers() const { return before + batches * heads * numbers_stride(); }
    std::size_t number(int row) const {
        const int batch = row / heads / seqlen_q, query = row / heads % seqlen_q;
        return before + (batch * heads + row % heads) * numbers_stride() + query;
    }
    attention_row_view numbers_view(float* pointer) const {
        return {pointer + before, heads * numbers_stride(), numbers_stride()};
    }
    // Whether everything outside the written rows is still NaN.
    template <class T>
    bool gaps_untouched(const std::vector<T>& values) const {
        std::vector<bool> own(values.size(), false);
        for (int row = 0; row < rows(); ++row) {
            for (int i = 0; i < columns; ++i) own[index(row, i)] = true;
        }
        bool same = true;
        for (std::size_t i = 0; i < values.size(); ++i)
            same = same && (own[i] || std::isnan(convert<float>(values[i])));
        return same;
    }
};

enum class form { divided, with_sums };

// A result in the memory of a world. Every `unseen`-th row is empty: its O is NaN.
struct result_memory {
    result_shape shape;
    form kept;
    buffer<float> o_accum, tops, row_sum;

    result_memory(world where, const result_shape& shape, form kept)
        : shape(shape),
          kept(kept),
          o_accum(where, shape.elements(), nan_value),
          tops(where, shape.numbers(), nan_value),
          row_sum(where, shape.numbers(), nan_value) {}
    void fill(unsigned seed, int unseen = 0) {
        std::mt19937 random(seed);
        std::uniform_real_distribution<float> number(-3, 3), top(-30, 30), sum(0.5f, 40);
        for (int row = 0; row < shape.rows(); ++row) {
            const bool nothing = unseen > 0 && random() % unseen == 0;
            tops.values[shape.number(row)] = nothing ? minus_infinity : top(random);
            row_sum.values[shape.number(row)] = nothing ? 0.0f : sum(random);
            for (int i = 0; i < shape.columns; ++i) {
                o_accum.values[shape.index(row, i)] = nothing ? nan_value : number(random);
            }
        }
    }
    attention_aux_outputs upload() {
        attention_aux_outputs made{};
        made.o_accum = shape.view(o_accum.upload());
        (kept == form::divided ? made.lse2 : made.row_max) = shape.numbers_view(tops.upload());
        if (kept == form::with_sums) made.row_sum = shape.numbers_view(row_sum.upload());
        return made;
    }
    void download() {
        o_accum.download();
        tops.download();
        row_sum.download();
    }

    double top(int row) const { return tops.values[shape.number(row)]; }
    double sum(int row) const { return kept == form::divided ? 1 : row_sum.values[shape.number(row)]; }
    double at(int row, int column) const {
        return top(row) == minus_infinity ? 0 : o_accum.values[shape.index(row, column)];
    }
};

// One row: the merge of two results, relative to the larger top.
struct merged_row {
    double top, first, second, total;

    merged_row(const result_memory& a, const result_memory* b, int row, double sink = -INFINITY) {
        const double other = b != nullptr ? b->top(row) : -INFINITY;
        top = std::fmax(std::fmax(a.top(row), other), sink);
        const double base = std::isinf(top) ? 0 : top;
        first = std::exp2(a.top(row) - base);
        second = b != nullptr ? std::exp2(other - base) : 0;
        total = first * a.sum(row) + (b != nullptr ? second * b->sum(row) : 0) + std::exp2(sink - base);
    }
    double at(const result_memory& a, const result_memory* b, int row, int column) const {
        return first * a.at(row, column) + (b != nullptr ? second * b->at(row, column) : 0);
    }
    double size(const result_memory& a, const result_memory* b, int row, int column) const {
        return std::fabs(first * a.at(row, column)) + (b != nullptr ? std::fabs(second * b->at(row, column)) : 0);
    }
    double lse2() const { return total == 0 ? -INFINITY : top + std::log2(total); }
};

bool close(double found, double wanted, double within) {
    return found == wanted || std::fabs(found - wanted) <= within;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The bits of the rows alone, in any layout.
template <class T>
std::vector<T> rows_of_shape(const result_shape& shape, const std::vector<T>& values) {
    std::vector<T> made;
    for (int row = 0; row < shape.rows(); ++row) {
        for (int i = 0; i < shape.columns; ++i) made.push_back(values[shape.index(row, i)]);
    }
    return made;
}
std::vector<float> numbers_of_shape(const result_shape& shape, const std::vector<float>& values) {
    std::vector<float> made;
    for (int row = 0; row < shape.rows(); ++row) made.push_back(values[shape.number(row)]);
    return made;
}

void check_merged(const result_memory& a, const result_memory* b, const result_memory& found) {
    bool right = true;
    for (int row = 0; row < a.shape.rows(); ++row) {
        const merged_row wanted(a, b, row);
        const bool divided = found.kept == form::divided;
        const double scale = divided && wanted.total != 0 ? 1 / wanted.total : 1;
        right = right && close(found.top(row), divided ? wanted.lse2() : wanted.top, 1e-5);
        if (!divided) right = right && close(found.sum(row), wanted.total, 1e-5 * wanted.total);
        for (int i = 0; i < a.shape.columns; ++i) {
            right = right && close(found.o_accum.values[found.shape.index(row, i)], scale * wanted.at(a, b, row, i),
                                   4e-6 * scale * wanted.size(a, b, row, i) + 1e-30);
        }
    }
    CHECK(right);
    CHECK(found.shape.gaps_untouched(found.o_accum.values));
}

void merge_wide(world where, result_memory& a, result_memory* b, result_memory& to) {
    merge_lse<float>::problem p{.first = a.upload(), .out = {}};
    if (b != nullptr) p.second = b->upload();
    const attention_aux_outputs written = to.upload();
    p.out = written.o_accum;
    p.lse2 = written.lse2;
    p.row_max = written.row_max;
    p.row_sum = written.row_sum;
    merge_lse<float>::launch(where, p);
    to.download();
}

// Both forms of both operands, to both forms of output.
void check_wide(const result_shape& in, const result_shape& result, int unseen) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(in.columns);
        CAPTURE(in.rows());
        for (const form first : {form::divided, form::with_sums}) {
            for (const form second : {form::divided, form::with_sums}) {
                for (const form merged : {form::divided, form::with_sums}) {
                    result_memory a(where, in, first), b(where, in, second), found(where, result, merged);
                    a.fill(1, unseen);
                    b.fill(2, unseen);
                    merge_wide(where, a, &b, found);
                    check_merged(a, &b, found);
                }
            }
        }
    }
}

template <class T>
void check_rounded(const result_shape& in, const result_shape& result, int unseen, bool with_sinks, bool with_sums,
                   bool alone = false) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(in.columns);
        CAPTURE(in.rows());
        result_memory a(where, in, form::with_sums), b(where, in, form::divided), numbers(where, result, form::divided);
        a.fill(3, unseen);
        b.fill(4, unseen);
        buffer<T> out(where, result.elements());
        out.values = poisoned<T>(result.elements());
        buffer<float> sinks(where, in.heads);
        fill_random(sinks.values, 5, -15, 15);
        typename merge_lse<T>::problem p{.first = a.upload(), .out = {}};
        if (!alone) p.second = b.upload();
        p.out = result.view(out.upload());
        if (with_sums) p.lse2 = result.numbers_view(numbers.tops.upload());
        if (with_sinks) p.sinks = sinks.upload();
        merge_lse<T>::launch(where, p);
        out.download();
        numbers.download();
        bool right = true;
        for (int row = 0; row < in.rows(); ++row) {
            const double sink = with_sinks ? sinks.values[row % in.heads] * 1.4426950408889634 : -INFINITY;
            const result_memory* const other = alone ? nullptr : &b;
            const merged_row wanted(a, other, row, sink);
            if (with_sums) right = right && close(numbers.top(row), wanted.lse2(), 1e-5);
            const double scale = wanted.total != 0 ? 1 / wanted.total : 1;
            for (int i = 0; i < in.columns; ++i) {
                const double value = scale * wanted.at(a, other, row, i);
                right = right &&
                        close(convert<float>(out.values[result.index(row, i)]), value,
                              tolerance<T>() * std::fabs(value) + 4e-6 * scale * wanted.size(a, other, row, i) + 6e-8);
            }
        }
        CHECK(right);
        CHECK(result.gaps_untouched(out.values));
    }
}

}  // namespace

TEST_CASE("merges two results of different keys, normalised or partial") {
    for (const int columns : {8, 64, 72, 128, 192, 256, 264, 520})
        check_wide({1, 5, 3, columns}, {1, 5, 3, columns}, 0);
    for (const int columns : {1, 7, 33, 257}) check_wide({1, 3, 3, columns}, {1, 3, 3, columns}, 3);
    check_wide({3, 7, 2, 128, 8, 4}, {3, 7, 2, 128}, 4);
    check_wide({2, 1, 5, 64, 4}, {2, 1, 5, 64, 12, 8}, 2);
    check_wide({2, 3, 1, 100, 3, 1}, {2, 3, 1, 100, 1, 5}, 2);
    check_wide({1, 67, 1, 16}, {1, 67, 1, 16}, 5);
}

TEST_CASE("finishes and rounds merged results, with sinks, and with the LSE if requested") {
    for (const bool sinks : {false, true}) {
        check_rounded<bf16>({1, 9, 4, 128}, {1, 9, 4, 128}, 3, sinks, true);
        check_rounded<fp16>({2, 5, 3, 64, 8}, {2, 5, 3, 64}, 3, sinks, false);
        check_rounded<bf16>({1, 4, 2, 200, 8}, {1, 4, 2, 200, 8, 8}, 3, sinks, true);
        check_rounded<fp16>({1, 4, 2, 19, 1}, {1, 4, 2, 19, 3, 1}, 2, sinks, true);
        check_rounded<bf16>({1, 6, 2, 128}, {1, 6, 2, 128}, 3, sinks, true, true);
        check_rounded<float>({1, 6, 2, 33}, {1, 6, 2, 33}, 3, sinks, true, true);
    }
}

TEST_CASE("a merged result may overwrite one of the operands") {
    const result_shape shape{2, 7, 3, 128}, long_rows{1, 3, 2, 776, 4}, ragged{1, 5, 2, 45, 1, 3};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const result_shape& one : {shape, long_rows, ragged}) {
            for (const form kept : {form::divided, form::with_sums}) {
                result_memory a(where, one, kept), b(where, one, kept), apart(where, one, kept);
                a.fill(1, 3);
                b.fill(2, 3);
                merge_wide(where, a, &b, apart);
                for (const bool over_first : {true, false}) {
                    result_memory left(where, one, kept), right(where, one, kept);
                    left.fill(1, 3);
                    right.fill(2, 3);
                    merge_wide(where, left, &right, over_first ? left : right);
                    const result_memory& found = over_first ? left : right;
                    CHECK(same_bits(found.o_accum.values, apart.o_accum.values));
                    CHECK(
                        same_bits(numbers_of_shape(one, found.tops.values), numbers_of_shape(one, apart.tops.values)));
                    if (kept == form::with_sums) CHECK(same_bits(found.row_sum.values, apart.row_sum.values));
                }
            }
        }
    }
}

TEST_CASE("the same operands in the same order give the same bits: in any layout, finished at once or later") {
    const result_shape packed{2, 5, 3, 128}, ragged{2, 5, 3, 128, 3, 1};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        result_memory a(where, packed, form::with_sums), b(where, packed, form::with_sums);
        result_memory c(where, ragged, form::with_sums), d(where, ragged, form::with_sums);
        a.fill(1, 4);
        c.fill(1, 4);
        b.fill(2, 4);
        d.fill(2, 4);
        result_memory merged(where, packed, form::with_sums), elsewhere(where, ragged, form::with_sums);
        merge_wide(where, a, &b, merged);
        merge_wide(where, c, &d, elsewhere);
        CHECK(same_bits(rows_of_shape(packed, merged.o_accum.values), rows_of_shape(ragged, elsewhere.o_accum.values)));
        CHECK(same_bits(numbers_of_shape(packed, merged.tops.values), numbers_of_shape(ragged, elsewhere.tops.values)));
        CHECK(same_bits(numbers_of_shape(packed, merged.row_sum.values),
                        numbers_of_shape(ragged, elsewhere.row_sum.values)));

        buffer<float> sinks(where, 3);
        fill_random(sinks.values, 5, -15, 15);
        const auto finish = [&](result_memory& first, result_memory* second, std::vector<bf16>& out,
                                std::vector<float>& lse2) {
            buffer<bf16> rounded(where, packed.elements());
            buffer<float> numbers(where, packed.numbers());
            merge_lse<bf16>::problem p{.first = first.upload(), .out = {}};
            if (second != nullptr) p.second = second->upload();
            p.out = packed.view(rounded.upload());
            p.lse2 = packed.numbers_view(numbers.upload());
            p.sinks = sinks.upload();
            merge_lse<bf16>::launch(where, p);
            rounded.download();
            numbers.download();
            out = rounded.values;
            lse2 = numbers.values;
        };
        std::vector<bf16> at_once, afterwards, from_ragged;
        std::vector<float> sums_at_once, sums_afterwards, sums_from_ragged;
        finish(a, &b, at_once, sums_at_once);
        finish(merged, nullptr, afterwards, sums_afterwards);
        finish(c, &d, from_ragged, sums_from_ragged);
        CHECK(same_bits(at_once, afterwards));
        CHECK(same_bits(at_once, from_ragged));
        CHECK(same_bits(sums_at_once, sums_afterwards));
        CHECK(same_bits(sums_at_once, sums_from_ragged));
    }
}

TEST_CASE("three results give the same in any grouping and order, within rounding") {
    const result_shape shape{1, 40, 4, 64};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        result_memory a(where, shape, form::with_sums), b(where, shape, form::divided),
            c(where, shape, form::with_sums);
        a.fill(1, 3);
        b.fill(2, 3);
        c.fill(3, 3);
        const auto both = [&](result_memory& first, result_memory& second, form kept) {
            auto made = std::make_unique<result_memory>(where, shape, kept);
            merge_wide(where, first, &second, *made);
            return made;
        };
        const auto left = both(*both(a, b, form::with_sums), c, form::divided);
        const auto right = both(a, *both(b, c, form::divided), form::divided);
        const auto turned = both(c, *both(b, a, form::with_sums), form::divided);
        bool same = true;
        for (int row = 0; row < shape.rows(); ++row) {
            same =
                same && close(left->top(row), right->top(row), 1e-5) && close(left->top(row), turned->top(row), 1e-5);
            for (int i = 0; i < shape.columns; ++i) {
                const double one = left->o_accum.values[shape.index(row, i)];
                same = same && close(right->o_accum.values[shape.index(row, i)], one, 1e-5) &&
                       close(turned->o_accum.values[shape.index(row, i)], one, 1e-5);
            }
        }
        CHECK(same);
    }
}

TEST_CASE("a cleared result has no weight: merging with it keeps the bits of the other") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const result_shape& shape : {result_shape{2, 5, 3, 128}, {1, 3, 2, 776, 8}, {1, 3, 2, 45, 3, 1}}) {
            for (const form kept : {form::divided, form::with_sums}) {
                result_memory cleared(where, shape, kept), a(where, shape, kept), found(where, shape, kept);
                a.fill(1);
                clear_attention_outputs::launch(where, cleared.upload());
                cleared.download();
                bool empty = true;
                for (int row = 0; row < shape.rows(); ++row) {
                    empty =
                        empty && cleared.top(row) == minus_infinity && (kept == form::divided || cleared.sum(row) == 0);
                    for (int i = 0; i < shape.columns; ++i) {
                        empty = empty && cleared.o_accum.values[shape.index(row, i)] == 0;
                    }
                }
                CHECK(empty);
                CHECK(shape.gaps_untouched(cleared.o_accum.values));
                for (const bool first : {true, false}) {
                    merge_wide(where, first ? cleared : a, first ? &a : &cleared, found);
                    CHECK(
                        same_bits(rows_of_shape(shape, found.o_accum.values), rows_of_shape(shape, a.o_accum.values)));
                    CHECK(
                        same_bits(numbers_of_shape(shape, found.tops.values), numbers_of_shape(shape, a.tops.values)));
                }
            }
        }
    }
}

TEST_CASE("NaN row sums propagate through a merge") {
    const result_shape shape{1, 2, 1, 16};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        result_memory a(where, shape, form::with_sums), b(where, shape, form::with_sums);
        result_memory merged(where, shape, form::with_sums), found(where, shape, form::divided);
        a.fill(1);
        b.fill(2);
        // As attention leaves them for NaN inputs: no score is the maximum.
        a.tops.values[0] = minus_infinity;
        a.row_sum.values[0] = nan_value;
        merge_wide(where, a, &b, merged);
        merge_wide(where, b, &merged, found);
        CHECK(std::isnan(found.o_accum.values[0]));
        CHECK(std::isnan(found.tops.values[0]));
        CHECK(!std::isnan(found.o_accum.values[16]));
    }
}

TEST_CASE("fp32 results are rounded once") {
    const auto check = [](auto type, const result_shape& in, const result_shape& result) {
        using T = decltype(type);
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            result_memory a(where, in, form::divided);
            a.fill(1);
            buffer<T> out(where, result.elements());
            out.values = poisoned<T>(result.elements());
            downconvert_output<T>::launch(
                where, {.o_accum = in.view<const float>(a.o_accum.upload()), .out = result.view(out.upload())});
            out.download();
            std::vector<T> wanted;
            for (const float value : rows_of_shape(in, a.o_accum.values)) wanted.push_back(convert<T>(value));
            CHECK(same_bits(rows_of_shape(result, out.values), wanted));
            CHECK(result.gaps_untouched(out.values));
        }
    };
    check(bf16{}, {2, 9, 3, 128}, {2, 9, 3, 128});
    check(fp16{}, {2, 9, 3, 72, 8}, {2, 9, 3, 72});
    check(bf16{}, {1, 9, 3, 264}, {1, 9, 3, 264, 8, 8});
    check(fp16{}, {1, 2, 3, 31, 1}, {1, 2, 3, 31, 2, 1});
}

TEST_CASE("empty results do nothing, and invalid arguments are rejected") {
    const result_shape shape{1, 4, 2, 16};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        clear_attention_outputs::launch(where, {});
        downconvert_output<bf16>::launch(where, {});
        merge_lse<bf16>::launch(where, {});
        result_memory a(where, shape, form::with_sums), b(where, shape, form::divided), c(where, shape, form::divided);
        buffer<bf16> rounded(where, shape.elements());
        merge_lse<float>::problem good{.first = a.upload(), .second = b.upload(), .out = {}};
        good.out = c.upload().o_accum;
        good.lse2 = c.upload().lse2;
        const auto refused = [&](auto change) {
            auto bad = good;
            change(bad);
            return error_message_of([&] { merge_lse<float>::launch(where, bad); });
        };
        CHECK(refused([](auto&) {}) == "no error");
        CHECK(refused([](auto& p) { p.out.pointer = nullptr; }) ==
              "out.pointer: null; a tensor of 1 x 2 x 4 x 16 is needed");
        CHECK(refused([](auto& p) { --p.out.extents.given[2]; }) ==
              "out.extents[2]: 3; first.o_accum has 4 rows, and it must have as many");
        CHECK(refused([](auto& p) { ++p.second.o_accum.extents.given[3]; }) ==
              "second.o_accum.extents[3]: 17; first.o_accum has 16 columns, and it must have as many");
        CHECK(refused([](auto& p) { p.out.strides.given[2] = 0; }) ==
              "out.strides[2]: 0; must be at least 16: rows must not overlap");
        CHECK(refused([](auto& p) { p.lse2 = {}; }) == "lse2.pointer: null; 1 x 2 x 4 numbers are needed");
        CHECK(refused([](auto& p) { p.first.row_sum = {}; }) ==
              "first.row_sum.pointer: null; 1 x 2 x 4 numbers are needed");
        CHECK(refused([](auto& p) { p.second.lse2 = {}; }) ==
              "second.lse2: null; either lse2 or row_max and row_sum are needed");
        CHECK(refused([](auto& p) { p.second.row_sum = p.first.row_sum; }) ==
              "second.lse2: given together with row_max or row_sum; a result is either normalised (lse2) or partial");
        CHECK(refused([](auto& p) { p.row_max = p.row_sum = p.first.row_sum; }) ==
              "lse2: given together with row_max or row_sum; the merged result is either normalised or partial");
        CHECK(refused([](auto& p) { p.second.lse2.head_stride = 3; }) ==
              "second.lse2.head_stride: 3; must be at least 4, the number of queries");
        CHECK(refused([](auto& p) { p.first.o_accum.extents.given[0] = 2147483647; }) ==
              "first.o_accum.extents: 2147483647 x 2 x 4; at most 2147418112 rows are allowed");
        CHECK(refused([](auto& p) {
                  p.lse2 = {};
                  p.row_max = p.row_sum = p.first.row_sum;
                  p.sinks = p.row_sum.pointer;
              }).ends_with("; must be null for a partial result"));
        merge_lse<bf16>::problem narrow{.first = good.first, .second = good.second, .out = {}};
        narrow.out = shape.view(rounded.upload());
        narrow.row_max = narrow.row_sum = good.first.row_sum;
        CHECK(error_message_of([&] { merge_lse<bf16>::launch(where, narrow); }) ==
              "row_max, row_sum: given; a partial result must be fp32");
        attention_aux_outputs without_numbers{};
        without_numbers.o_accum = good.out;
        CHECK(error_message_of([&] { clear_attention_outputs::launch(where, without_numbers); }) ==
              "lse2: null; either lse2 or row_max and row_sum are needed");
        CHECK(error_message_of([&] { downconvert_output<bf16>::launch(where, {.o_accum = good.out, .out = {}}); }) ==
              "out.extents[0]: 0; o_accum has 1 batch entries, and it must have as many");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("merge_lse has no hazard in any schedule; it has no synchronisation to mutate") {
    const result_shape shape{1, 6, 3, 128};
    result_memory a(world::host, shape, form::with_sums), b(world::host, shape, form::with_sums);
    a.fill(1, 3);
    b.fill(2, 3);
    merge_lse<float>::problem p{.first = a.upload(), .second = b.upload(), .out = {}};
    p.out = p.first.o_accum;
    p.row_max = p.first.row_max;
    p.row_sum = p.first.row_sum;
    using kernel = output_rows_kernel<merge_lse_step<float>, 2, 128, row_alignment::aligned>;
    const kernel::arguments args{merge_lse<float>::step_of(p), {1, 6, 3, 128}};
    check_without_synchronisation<kernel>(kernel::grid_of(args), args);
}

TEST_CASE("check of merge_lse, clear_attention_outputs and downconvert_output") {
    const result_shape shape{2, 6, 3, 128};
    result_memory a(world::host, shape, form::with_sums), b(world::host, shape, form::with_sums);
    a.fill(1, 3);
    b.fill(2, 3);
    merge_lse<float>::problem p{.first = a.upload(), .second = b.upload(), .out = {}};
    p.out = p.first.o_accum;
    p.row_max = p.first.row_max;
    p.row_sum = p.first.row_sum;
    CHECK(text_of(merge_lse<float>::check(p, {.schedules = 4})) == "");
    // Rows of the output overlap operands of other rows.
    merge_lse<float>::problem wrong = p;
    wrong.out.pointer += 128;
    CHECK(text_of(merge_lse<float>::check(wrong, {.schedules = 4})).find("hazard: race") == 0);
    wrong.out.strides.given[0] = 0;
    CHECK(error_message_of([&] { merge_lse<float>::check(wrong); }) != "no error");

    CHECK(text_of(clear_attention_outputs::check(p.first, {.schedules = 4})) == "");
    attention_aux_outputs nothing{};
    nothing.o_accum = p.first.o_accum;
    CHECK(error_message_of([&] { clear_attention_outputs::check(nothing); }).find("lse2: null") == 0);

    std::vector<bf16> rounded(2 * 6 * 3 * 128);
    const attention_view<float> from = p.first.o_accum;
    downconvert_output<bf16>::problem rounding{.o_accum = {from.pointer, from.extents, from.strides},
                                               .out = batch_sequence_head(rounded.data(), 2, 6, 3, 128)};
    CHECK(text_of(downconvert_output<bf16>::check(rounding, {.schedules = 4})) == "");
    rounding.out = {};
    CHECK(error_message_of([&] { downconvert_output<bf16>::check(rounding); }).find("out.extents[0]: 0") == 0);
}
#endif
