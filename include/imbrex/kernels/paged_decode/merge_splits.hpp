// LSE merge of split-KV partial results: of the warps of a block through shared memory, and of the splits of a work
// item through the workspace in global memory. The unit is a slice: 16 rows by 8 columns of unnormalised O, with
// row_max and row_sum. With only 4 or 8 rows, as for one token of 4 query heads per KV head, a slice packs 32 or 16
// columns (ops/warp/stack_columns.hpp). Slices are merged in a fixed order: results are bitwise reproducible.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/stack_columns.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <utility>

namespace imbrex {

inline constexpr int decode_slice_rows = 16;
inline constexpr int decode_slice_columns = 8;

template <int Width>
struct decode_partial_slice_of {
    using values = row_values<float, decode_slice_rows, warp>;

    warp_tile<float, decode_slice_rows, Width> acc_o;
    values row_max;  // of scores in base 2
    values row_sum;
};
using decode_partial_slice = decode_partial_slice_of<decode_slice_columns>;

// A slice in global memory, in the register layout of a warp.
template <int Width>
struct alignas(16) decode_workspace_slice_of {
    float acc_o[decode_slice_rows * Width];
    float row_max[4 * decode_slice_rows];
    float row_sum[4 * decode_slice_rows];

    IMBREX_KERNEL void store_from(const warp& scope, const decode_partial_slice_of<Width>& from,
                                  source here = source::current()) {
        save(scope, acc_o, from.acc_o, here);
        save(scope, row_max, from.row_max, here);
        save(scope, row_sum, from.row_sum, here);
    }
    IMBREX_KERNEL void load_to(const warp& scope, decode_partial_slice_of<Width>& to,
                               source here = source::current()) const {
        restore(scope, to.acc_o, acc_o, here);
        restore(scope, to.row_max, row_max, here);
        restore(scope, to.row_sum, row_sum, here);
    }
};
using decode_workspace_slice = decode_workspace_slice_of<decode_slice_columns>;

template <int Width>
IMBREX_KERNEL void clear(const warp& scope, decode_partial_slice_of<Width>& all, source here = source::current()) {
    fill(scope, all.acc_o, 0.0f, here);
    fill(scope, all.row_max, minus_infinity, here);
    fill(scope, all.row_sum, 0.0f, here);
}

// Merges `count` slices into `all`. load(number, slice) loads one; AtOnce loads are in flight together to hide their
// latency.
template <int AtOnce, int Width, class Load>
IMBREX_KERNEL void merge_slices(const warp& scope, decode_partial_slice_of<Width>& all, int count, const Load& load,
                                source here = source::current()) {
    const auto relative = [](float score, float top) { return hw::exp2(score - (top == minus_infinity ? 0.0f : top)); };
    for (int first = 0; first < count; first += AtOnce) {
        decode_partial_slice_of<Width> some[AtOnce];
        const auto for_some = [&](const auto& call) {
            [&]<int... Numbers>(std::integer_sequence<int, Numbers...>) {
                ((first + Numbers < count ? call(first + Numbers, some[Numbers]) : void()), ...);
            }
            (std::make_integer_sequence<int, AtOnce>{});
        };
        for_some(load);
        decode_partial_slice::values top = all.row_max;
        for_some([&](int, decode_partial_slice_of<Width>& one) {
            combine(scope, top, one.row_max, functional::maximum{}, here);
        });
        combine(scope, all.row_max, top, relative, here);
        combine(scope, all.row_sum, all.row_max, functional::multiply{}, here);
        combine_with_rows(scope, all.acc_o, all.row_max, functional::multiply{}, here);
        all.row_max = top;
        for_some([&](int, decode_partial_slice_of<Width>& one) {
            combine(scope, one.row_max, top, relative, here);
            hw::visit_rows(
                scope, hw::use::update, here,
                [](int, float& row_sum, const float& more, const float& weight) {
                    row_sum = hw::fma(more, weight, row_sum);
                },
                all.row_sum, one.row_sum, one.row_max);
            combine_with_rows(
                scope, all.acc_o, one.acc_o, one.row_max,
                [](float sum, float more, float weight) { return hw::fma(more, weight, sum); }, here);
        });
    }
}

// Alignment of query and output rows: two elements, so that a lane moves two at once; or one element.
enum class decode_access { vec2, scalar };

template <decode_access Access, class T, int Columns, class Place>
IMBREX_KERNEL void load_decode_rows(const warp& scope, warp_tile<T, decode_slice_rows, Columns>& to, const Place& place,
                                    source here = source::current()) {
    if constexpr (Access == decode_access::vec2) {
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
                                     const warp_tile<T, decode_slice_rows, Columns>& from,
                                     source here = source::current()) {
    if constexpr (Access == decode_access::vec2) {
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

// Which rows and columns a slice has.
struct decode_slice_coord {
    gqa_rows rows;
    int kept;  // rows that are packed: 4 or 8; 16: not packed
    int column;
    int columns;  // width of the tile that was packed: its right part is in lower rows

    IMBREX_FN bool exists(int row) const { return rows.exists(stacked_row(kept, row)); }
    IMBREX_FN int head(int row) const { return rows.head(stacked_row(kept, row)); }
    IMBREX_FN int query(int row) const { return rows.query(stacked_row(kept, row)); }
    IMBREX_FN int first_column(int row) const { return column + first_stacked_column(kept, columns, row); }
};

// One value per existing row; 0 for padding.
template <class Place>
IMBREX_KERNEL void load_row_values(const warp& scope, decode_partial_slice::values& to, const decode_slice_coord& rows,
                                   const attention_row_view& from, const Place& place, source here) {
    hw::visit_rows(
        scope, hw::use::write, here,
        [&](int row, float& value) { value = rows.exists(row) ? *place(from, row) : 0.0f; }, to);
}

// Outputs, and the partial result of another launch over other keys that is merged into them.
template <class In>
struct decode_results {
    attention_view<In> out;            // of attention_output_mode::normalised
    attention_aux_outputs outputs;     // lse2; or o_accum, row_max, row_sum
    attention_aux_outputs merge_with;  // o_accum, row_max, row_sum; or null
    const float* sinks;                // attention sinks: one logit per query head in the softmax denominator; or null
};

// Writes a slice that is merged over all keys: normalised, or partial.
template <attention_output_mode Result, decode_access Access, class In>
IMBREX_KERNEL void store_output_slice(const warp& scope, const decode_results<In>& to, const paged_seqlens& lengths,
                                      const decode_slice_coord& at, decode_partial_slice& slice,
                                      source here = source::current()) {
    static_assert(Result != attention_output_mode::merged, "imbrex: a decode merges through options.merge_with");
    const int member = lengths.member(at.rows.sequence.batch);
    const int first_query = lengths.first_query(at.rows.sequence.batch);
    const auto row_of = [&](const auto& view) {
        return [&](int row) {
            const int column = at.first_column(row);
            auto* const begin = view.at(member, at.head(row), first_query + at.query(row), column).pointer;
            return at.exists(row) && column < view.columns() ? begin : nullptr;
        };
    };
    const auto value_of = [&](const attention_row_view& values, int row) {
        return values.at(member, at.head(row), first_query + at.query(row));
    };
    const auto store_values = [&](const attention_row_view& values, const decode_partial_slice::values& from) {
        if (at.column != 0 || values.pointer == nullptr) return;
        hw::visit_rows(
            scope, hw::use::read, here,
            [&](int row, const float& value) {
                if (row < at.kept && at.exists(row)) *value_of(values, row) = value;
            },
            from);
    };
    if (to.merge_with.o_accum.pointer != nullptr) {
        merge_slices<1>(
            scope, slice, 1,
            [&](int, decode_partial_slice& one) {
                load_decode_rows<Access>(scope, one.acc_o, row_of(to.merge_with.o_accum), here);
                load_row_values(scope, one.row_max, at, to.merge_with.row_max, value_of, here);
                load_row_values(scope, one.row_sum, at, to.merge_with.row_sum, value_of, here);
            },
            here);
    }
    if constexpr (Result == attention_output_mode::partial) {
        store_values(to.outputs.row_max, slice.row_max);
        store_values(to.outputs.row_sum, slice.row_sum);
        store_decode_rows<Access>(scope, row_of(to.outputs.o_accum), slice.acc_o, here);
        return;
    }
    decode_partial_slice::values factor = slice.row_sum;
    hw::visit_rows(
        scope, hw::use::update, here,
        [&](int row, float& of_row, float& lse2) {
            const float row_max = lse2;
            const float sink = to.sinks == nullptr ? minus_infinity : to.sinks[at.head(row)] * log2_of_e;
            const float top = hw::max(row_max, sink);
            const float base = top == minus_infinity ? 0.0f : top;
            const float share = hw::exp2(row_max - base);
            const float sum = of_row * share + hw::exp2(sink - base);
            of_row = sum > 0 ? share * hw::reciprocal(sum) : 0.0f;
            lse2 = sum > 0 ? base + hw::log2(sum) : minus_infinity;
        },
        factor, slice.row_max);
    combine_with_rows(scope, slice.acc_o, factor, functional::multiply{}, here);
    store_values(to.outputs.lse2, slice.row_max);
    store_decode_rows<Access>(scope, row_of(to.out), imbrex::convert_to<In>(scope, slice.acc_o, here), here);
}

}  // namespace imbrex
