// Results of different keys put together: of the warps of a block, through its shared memory, and of the blocks that have parts of
// a unit, through global memory. What is put together is a slice: 16 rows by 8 columns of sums that are not divided yet, with each
// row's largest score and the sum of its weights. Where there are 4 rows or 8, as with a token of 4 heads that share keys, a slice has
// 32 or 16 columns of these, packed (ops/warp/pack.hpp). Slices are put together in a fixed order, so that results have the same
// bits every time.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/pack.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <utility>

namespace imbrex {

inline constexpr int decode_slice = 16;       // rows
inline constexpr int decode_slice_width = 8;  // columns

template <int Width>
struct decode_sums_of {
    using values = row_values<float, decode_slice, warp>;

    warp_tile<float, decode_slice, Width> sums;
    values largest;  // as powers of 2
    values total;
};
using decode_sums = decode_sums_of<decode_slice_width>;

// Such sums in global memory, as a warp holds them.
template <int Width>
struct alignas(16) decode_partial_of {
    float sums[decode_slice * Width];
    float largest[4 * decode_slice];
    float total[4 * decode_slice];

    IMBREX_KERNEL void store_from(const warp& scope, const decode_sums_of<Width>& from,
                                  source here = source::current()) {
        save(scope, sums, from.sums, here);
        save(scope, largest, from.largest, here);
        save(scope, total, from.total, here);
    }
    IMBREX_KERNEL void load_to(const warp& scope, decode_sums_of<Width>& to, source here = source::current()) const {
        restore(scope, to.sums, sums, here);
        restore(scope, to.largest, largest, here);
        restore(scope, to.total, total, here);
    }
};
using decode_partial = decode_partial_of<decode_slice_width>;

template <int Width>
IMBREX_KERNEL void clear(const warp& scope, decode_sums_of<Width>& all, source here = source::current()) {
    fill(scope, all.sums, 0.0f, here);
    fill(scope, all.largest, minus_infinity, here);
    fill(scope, all.total, 0.0f, here);
}

// Adds `count` slices to what is there. load(number, slice) brings one; AtOnce of them are asked for before the first is waited
// for, since what is in global memory takes its time.
template <int AtOnce, int Width, class Load>
IMBREX_KERNEL void add_slices(const warp& scope, decode_sums_of<Width>& all, int count, const Load& load,
                              source here = source::current()) {
    const auto relative = [](float score, float top) { return hw::exp2(score - (top == minus_infinity ? 0.0f : top)); };
    for (int first = 0; first < count; first += AtOnce) {
        decode_sums_of<Width> some[AtOnce];
        const auto for_some = [&](const auto& call) {
            [&]<int... Numbers>(std::integer_sequence<int, Numbers...>) {
                ((first + Numbers < count ? call(first + Numbers, some[Numbers]) : void()), ...);
            }
            (std::make_integer_sequence<int, AtOnce>{});
        };
        for_some(load);
        decode_sums::values top = all.largest;
        for_some([&](int, decode_sums_of<Width>& one) { combine(scope, top, one.largest, maximum{}, here); });
        combine(scope, all.largest, top, relative, here);
        combine(scope, all.total, all.largest, multiply{}, here);
        combine_with_rows(scope, all.sums, all.largest, multiply{}, here);
        all.largest = top;
        for_some([&](int, decode_sums_of<Width>& one) {
            combine(scope, one.largest, top, relative, here);
            hw::visit_rows(
                scope, hw::use::update, here,
                [](int, float& total, const float& more, const float& weight) { total = hw::fma(more, weight, total); },
                all.total, one.total, one.largest);
            combine_with_rows(
                scope, all.sums, one.sums, one.largest,
                [](float sum, float more, float weight) { return hw::fma(more, weight, sum); }, here);
        });
    }
}

// Where rows of queries and results may begin: at multiples of two elements' bytes, so that a lane moves two at once; or anywhere.
enum class decode_access { in_pairs, anywhere };

template <decode_access Access, class T, int Columns, class Place>
IMBREX_KERNEL void load_decode_rows(const warp& scope, warp_tile<T, decode_slice, Columns>& to, const Place& place,
                                    source here = source::current()) {
    if constexpr (Access == decode_access::in_pairs) {
        load_rows_from(scope, to, place, T{}, here);
    } else {
        hw::visit(
            scope, hw::use::write, here,
            [&](int row, int column, T& element) {
                const T* const begin = place(row);
                element = begin != nullptr ? begin[column] : T{};
            },
            to);
    }
}
template <decode_access Access, class T, int Columns, class Place>
IMBREX_KERNEL void store_decode_rows(const warp& scope, const Place& place,
                                     const warp_tile<T, decode_slice, Columns>& from, source here = source::current()) {
    if constexpr (Access == decode_access::in_pairs) {
        store_rows_to(scope, place, from, here);
    } else {
        hw::visit(
            scope, hw::use::read, here,
            [&](int row, int column, const T& element) {
                T* const begin = place(row);
                if (begin != nullptr) begin[column] = element;
            },
            from);
    }
}

// What the rows and columns of a slice are.
struct decode_slice_place {
    decode_rows rows;
    int kept;     // rows that are packed: 4, 8, or 16, which is not at all
    int column;   // the first
    int columns;  // of the part that was packed: those further right are in rows further below

    IMBREX_FN bool exists(int row) const { return rows.exists(packed_row(kept, row)); }
    IMBREX_FN int head(int row) const { return rows.head(packed_row(kept, row)); }
    IMBREX_FN int query(int row) const { return rows.query(packed_row(kept, row)); }
    IMBREX_FN int first_column(int row) const { return column + first_packed_column(kept, columns, row); }
};

// One number for each row that exists; of the others, what they are does not matter.
template <class Place>
IMBREX_KERNEL void load_values_of(const warp& scope, decode_sums::values& to, const decode_slice_place& rows,
                                  const attention_rows& from, const Place& place, source here) {
    hw::visit_rows(
        scope, hw::use::write, here,
        [&](int row, float& value) { value = rows.exists(row) ? *place(from, row) : 0.0f; }, to);
}

// Where results go, and what other keys have given before, which is put together with them: the partial result of another
// launch, or nothing.
template <class In>
struct decode_results {
    attention_view<In> out;     // normalised
    attention_outputs outputs;  // and all others
    attention_outputs before;   // if there is one: wide, largest, sums
    const float* sinks;         // a logit for each head that takes up weight, or null
};

// A slice of which all keys have been seen: divided by its sums, or partial.
template <attention_result Result, decode_access Access, class In>
IMBREX_KERNEL void write_slice(const warp& scope, const decode_results<In>& to, const paged_lengths& lengths,
                               const decode_slice_place& at, decode_sums& slice, source here = source::current()) {
    static_assert(Result != attention_result::merged, "imbrex: what was there before is given to a decode by itself");
    const int member = lengths.member(at.rows.sequence.batch);
    const int first_query = lengths.first_query(at.rows.sequence.batch);
    const auto row_of = [&](const auto& view) {
        return [&](int row) {
            const int column = at.first_column(row);
            auto* const begin = view.at(member, at.head(row), first_query + at.query(row), column).pointer;
            return at.exists(row) && column < view.columns() ? begin : nullptr;
        };
    };
    const auto value_of = [&](const attention_rows& values, int row) {
        return values.at(member, at.head(row), first_query + at.query(row));
    };
    const auto store_values = [&](const attention_rows& values, const decode_sums::values& from) {
        if (at.column != 0 || values.pointer == nullptr) return;
        hw::visit_rows(
            scope, hw::use::read, here,
            [&](int row, const float& value) {
                if (row < at.kept && at.exists(row)) *value_of(values, row) = value;
            },
            from);
    };
    if (to.before.wide.pointer != nullptr) {
        add_slices<1>(
            scope, slice, 1,
            [&](int, decode_sums& one) {
                load_decode_rows<Access>(scope, one.sums, row_of(to.before.wide), here);
                load_values_of(scope, one.largest, at, to.before.largest, value_of, here);
                load_values_of(scope, one.total, at, to.before.sums, value_of, here);
            },
            here);
    }
    if constexpr (Result == attention_result::partial) {
        store_values(to.outputs.largest, slice.largest);
        store_values(to.outputs.sums, slice.total);
        store_decode_rows<Access>(scope, row_of(to.outputs.wide), slice.sums, here);
        return;
    }
    decode_sums::values factor = slice.total;
    hw::visit_rows(
        scope, hw::use::update, here,
        [&](int row, float& of_row, float& log2_sum) {
            const float largest = log2_sum;
            const float sink = to.sinks == nullptr ? minus_infinity : to.sinks[at.head(row)] * log2_of_e;
            const float top = hw::max(largest, sink);
            const float base = top == minus_infinity ? 0.0f : top;
            const float share = hw::exp2(largest - base);
            const float sum = of_row * share + hw::exp2(sink - base);
            of_row = sum > 0 ? share * hw::reciprocal(sum) : 0.0f;
            log2_sum = sum > 0 ? base + hw::log2(sum) : minus_infinity;
        },
        factor, slice.largest);
    combine_with_rows(scope, slice.sums, factor, multiply{}, here);
    store_values(to.outputs.log2_sums, slice.largest);
    store_decode_rows<Access>(scope, row_of(to.out), imbrex::to<In>(scope, slice.sums, here), here);
}

}  // namespace imbrex
