// SIMT paged attention on the device: each lane computes the elements of a register tile that it holds. Rows are read
// element by element, at any alignment; lanes that read the same element hit the cache.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/paged_row_blocks.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/math.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <limits>
#include <type_traits>

namespace imbrex::hw {

// Clamps to [first, end).
IMBREX_KERNEL int nearest_inside(int number, int first, int end) {
    return number < first ? first : number >= end ? end - 1 : number;
}

// Rows that do not exist read the first one; their results are not used.
template <int Rows, int Columns, class RowPlace, class Place>
IMBREX_KERNEL void simt_qk(const warp&, fragment<float, Rows, Columns, 1>& products, int rows,
                           const RowPlace& row_place, const paged_row_blocks<Place>& others, int head_dim, source) {
    using tile = fragment<float, Rows, Columns, 1>;
    static_assert(Rows == 16, "imbrex: Rows must be 16");
    constexpr int block = paged_row_blocks<Place>::rows_in_block, strips_in_block = block / tile::strip_columns;
    const int upper = lane_row() < rows ? lane_row() : 0, lower = lane_row() + 8 < rows ? lane_row() + 8 : 0;
    const auto* const first = row_place(upper);
    const auto* const second = row_place(lower);
#pragma unroll
    for (int strip = 0; strip < tile::strips; ++strip) {
        const int begin = max(strip / strips_in_block * block, others.begin);
        const int end = min(strip / strips_in_block * block + block, others.end);
        const int column = stored_column<tile>(strip);
        float sums[4] = {};
        if (begin < end) {
            const auto* const from = others.block_pointer(strip / strips_in_block);
            const auto* const left = from + nearest_inside(column, begin, end) % block * others.stride;
            const auto* const right = from + nearest_inside(column + 1, begin, end) % block * others.stride;
#pragma unroll 4
            for (int i = 0; i < head_dim; ++i) {
                const float a = imbrex::convert<float>(first[i]), b = imbrex::convert<float>(second[i]);
                const float x = imbrex::convert<float>(left[i]), y = imbrex::convert<float>(right[i]);
                sums[0] += a * x, sums[1] += a * y, sums[2] += b * x, sums[3] += b * y;
            }
        }
#pragma unroll
        for (int item = 0; item < 4; ++item) {
            const int own = column + item % 2;
            products.values[0][strip][item] = own >= begin && own < end ? sums[item] : 0.0f;
        }
    }
}

// A probability is in one of the four lanes of its row, and is broadcast to the others. Each lane has its own columns
// of the sums.
template <int Rows, int Columns, int Keys, class Place>
IMBREX_KERNEL void simt_pv(const warp&, fragment<float, Rows, Columns, 1>& sums,
                           const fragment<float, Rows, Keys, 1>& weights, int, const paged_row_blocks<Place>& values,
                           int columns, source) {
    using tile = fragment<float, Rows, Columns, 1>;
    using weight_tile = fragment<float, Rows, Keys, 1>;
    static_assert(Rows == 16, "imbrex: Rows must be 16");
    constexpr int block = paged_row_blocks<Place>::rows_in_block, strip_rows = weight_tile::strip_columns;
    const int own = lane_in_quad() * tile::run;
#pragma unroll
    for (int strip = 0; strip < weight_tile::strips; ++strip) {
        if (strip * strip_rows >= values.end || (strip + 1) * strip_rows <= values.begin) continue;
        const auto* const from = values.block_pointer(strip * strip_rows / block);
#pragma unroll 1
        for (int holder = 0; holder < 4; ++holder) {
#pragma unroll
            for (int item = 0; item < 2; ++item) {
                const int row = strip * strip_rows + holder * weight_tile::run + item;
                const int lane_of_it = lane() - lane_in_quad() + holder;
                const float upper = __shfl_sync(all_lanes, weights.values[0][strip][item], lane_of_it);
                const float lower = __shfl_sync(all_lanes, weights.values[0][strip][2 + item], lane_of_it);
                if (row < values.begin || row >= values.end) continue;
                const auto* const value = from + row % block * values.stride + own;
#pragma unroll
                for (int part = 0; part < tile::strips; ++part) {
                    if (part * tile::strip_columns >= columns) break;
                    const float x = imbrex::convert<float>(value[part * tile::strip_columns]);
                    const float y = imbrex::convert<float>(value[part * tile::strip_columns + 1]);
                    float(&all)[4] = sums.values[0][part];
                    all[0] += upper * x, all[1] += upper * y, all[2] += lower * x, all[3] += lower * y;
                }
            }
        }
    }
}

template <int Rows, int Columns>
IMBREX_KERNEL void simt_online_softmax(const warp& scope, fragment<float, Rows, Columns, 1>& scores, int, float factor,
                                       row_fragment<float, Rows, 1>& row_max, row_fragment<float, Rows, 1>& sums,
                                       row_fragment<float, Rows, 1>& corrections, source here) {
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    row_fragment<float, Rows, 1> tops = row_max, totals;
    fold_rows(scope, tops, scores, functional::maximum{}, here);
    combine_rows(scope, tops, functional::maximum{}, here);
    // A row without visible keys is shifted by zero: its probabilities are zero and not NaN.
    visit_rows(
        scope, use::update, here,
        [&](int, float& correction, float& top, float& before, float& total) {
            const float shift = top == nothing ? 0.0f : top;
            correction = exp2((before - shift) * factor);
            before = top, top = shift, total = 0.0f;
        },
        corrections, tops, row_max, totals);
    visit(
        scope, use::update, here,
        [&](int, int, float& score, const float& shift) { score = exp2((score - shift) * factor); }, scores, tops);
    fold_rows(scope, totals, scores, functional::add{}, here);
    combine_rows(scope, totals, functional::add{}, here);
    visit_rows(
        scope, use::update, here,
        [](int, float& sum, const float& correction, const float& total) { sum = sum * correction + total; }, sums,
        corrections, totals);
}

template <int Rows, int Columns, class Place>
IMBREX_KERNEL void simt_store_rows(const warp& scope, const Place& place, const fragment<float, Rows, Columns, 1>& from,
                                   int rows, int columns, source here) {
    visit(
        scope, use::read, here,
        [&](int row, int column, const float& value) {
            if (row >= rows || column >= columns) return;
            auto* const to = place(row);
            to[column] = imbrex::convert<std::remove_reference_t<decltype(*to)>>(value);
        },
        from);
}

}  // namespace imbrex::hw
