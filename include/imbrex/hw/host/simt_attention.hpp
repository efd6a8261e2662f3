// SIMT paged attention in the host world. Each range of contiguous rows is multiplied at once, in place
// (hw/host/small_m_product.hpp); rows that are no multiple of a vector are converted and padded first. The softmax is written as loops that compilers vectorise. Rows that do not exist cost
// nothing, and the bits of a row's result do not depend on the number of rows.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/fast_math.hpp>
#include <imbrex/core/paged_row_blocks.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/scope.hpp>
#include <imbrex/hw/host/small_m_product.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <type_traits>

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

// Calls body(row, count, pointer) for each range of contiguous rows.
template <class Place, class Body>
void for_each_contiguous_run(const paged_row_blocks<Place>& rows, Body body) {
    constexpr int block = paged_row_blocks<Place>::rows_in_block;
    for (int row = rows.begin; row < rows.end;) {
        const auto* const from = rows.block_pointer(row / block) + row % block * rows.stride;
        int end = std::min(row / block * block + block, rows.end);
        while (end < rows.end && rows.block_pointer(end / block) == from + (end - row) * rows.stride) {
            end = std::min(end + block, rows.end);
        }
        body(row, end - row, from);
        row = end;
    }
}

// Calls body(row, count, pointer, stride) with rows of a multiple of Step columns: all `count` of them in place if they
// have this form, else 16 at a time as floats, padded with zeros.
template <int Step, class T, class Body>
void for_padded_rows(const T* from, std::ptrdiff_t stride, int count, int columns, Body body) {
    constexpr int most_rows = 16, most_columns = 256;
    if (columns % Step == 0) return body(0, count, from, stride);
    alignas(64) float converted[most_rows * most_columns];
    const int width = ceil_div(columns, Step) * Step;
    for (int done = 0; done < count; done += most_rows) {
        const int some = std::min(count - done, most_rows);
        for (int row = 0; row < some; ++row, from += stride) {
            float* const to = converted + row * width;
            for (int i = 0; i < columns; ++i) to[i] = convert<float>(from[i]);
            std::fill(to + columns, to + width, 0.0f);
        }
        body(done, some, static_cast<const float*>(converted), std::ptrdiff_t{width});
    }
}

template <int Rows, int Columns, class RowPlace, class Place, class Vectors = native_simd>
void simt_qk(const warp& scope, fragment<float, Rows, Columns, 1>& products, int rows, const RowPlace& row_place,
             const paged_row_blocks<Place>& others, int head_dim, source here) {
    const context c = enter_registers(scope, "simt_qk", here);
    if (!c) return;
    touch_fragment(c, products, use::write, "simt_qk", here);
    using few = small_m_product<Vectors>;
    const int width = ceil_div(head_dim, few::lanes) * few::lanes;
    alignas(64) float left[Rows * 256];
    for (int row = 0; row < rows; ++row) {
        const auto* const from = row_place(row);
        touch_global_row(c, from, head_dim, global_use::read, row, "simt_qk", here);
        float* const to = left + row * width;
        for (int i = 0; i < head_dim; ++i) to[i] = convert<float>(from[i]);
        std::fill(to + head_dim, to + width, 0.0f);
    }
    std::fill(std::begin(products.values), std::end(products.values), 0.0f);
    for_each_contiguous_run(others, [&](int first, int count, const auto* from) {
        for (int row = 0; row < count; ++row) {
            touch_global_row(c, from + row * others.stride, head_dim, global_use::read, row, "simt_qk", here);
        }
        const auto multiply = [&](int done, int some, const auto* right, std::ptrdiff_t stride) {
            few::score(products.values + first + done, Columns, left, width, right, stride, rows, some, width);
        };
        for_padded_rows<few::lanes>(from, others.stride, count, head_dim, multiply);
    });
    spend_lanes(c, static_cast<double>(rows) * (others.end - others.begin) * head_dim, "simt_qk");
}

template <int Rows, int Columns, int Keys, class Place, class Vectors = native_simd>
void simt_pv(const warp& scope, fragment<float, Rows, Columns, 1>& sums, const fragment<float, Rows, Keys, 1>& weights,
             int rows, const paged_row_blocks<Place>& values, int columns, source here) {
    const context c = enter_registers(scope, "simt_pv", here);
    if (!c) return;
    touch_fragment(c, weights, use::read, "simt_pv", here);
    touch_fragment(c, sums, use::update, "simt_pv", here);
    using few = small_m_product<Vectors>;
    const int width = ceil_div(columns, few::lanes) * few::lanes;
    for_each_contiguous_run(values, [&](int first, int count, const auto* from) {
        for (int row = 0; row < count; ++row) {
            touch_global_row(c, from + row * values.stride, columns, global_use::read, row, "simt_pv", here);
        }
        const auto add = [&](int done, int some, const auto* right, std::ptrdiff_t stride) {
            for (int row = 0; row < rows; row += few::max_rows) {
                few::add_weighted(sums.values + row * Columns, Columns, weights.values + row * Keys + first + done,
                                  Keys, right, stride, std::min(rows - row, few::max_rows), some, width);
            }
        };
        for_padded_rows<few::lanes>(from, values.stride, count, columns, add);
    });
    spend_lanes(c, static_cast<double>(rows) * (values.end - values.begin) * columns, "simt_pv");
}

// 2^x for x <= 0, branch-free. Below 2^-125 it is zero, so that masked scores have no weight; NaN stays NaN.
inline float weight_of(float x) {
    const float power = fast_exp2(x);
    return x > -125.0f ? power : x <= -125.0f ? 0.0f : x;
}

// Independent partial sums and maxima, so that additions do not wait for each other.
inline constexpr int weighed_at_once = 16;

// Pairwise reduction.
template <class Op>
float joined(float (&values)[weighed_at_once], Op op) {
    for (int half = weighed_at_once / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) values[i] = op(values[i], values[i + half]);
    }
    return values[0];
}

template <int Rows, int Columns>
void simt_online_softmax(const warp& scope, fragment<float, Rows, Columns, 1>& scores, int rows, float factor,
                         row_fragment<float, Rows, 1>& row_max, row_fragment<float, Rows, 1>& sums,
                         row_fragment<float, Rows, 1>& corrections, source here) {
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    const context c = enter_registers(scope, "simt_online_softmax", here);
    if (!c) return;
    touch_fragment(c, scores, use::update, "simt_online_softmax", here);
    touch_fragment(c, row_max, use::update, "simt_online_softmax", here);
    touch_fragment(c, sums, use::update, "simt_online_softmax", here);
    touch_fragment(c, corrections, use::write, "simt_online_softmax", here);
    std::fill(std::begin(corrections.values), std::end(corrections.values), 1.0f);
    for (int row = 0; row < rows; ++row) {
        float* const own = scores.values + row * Columns;
        float tops[weighed_at_once], totals[weighed_at_once] = {};
        std::fill(std::begin(tops), std::end(tops), row_max.values[row]);
        for (int first = 0; first < Columns; first += weighed_at_once) {
            for (int i = 0; i < weighed_at_once; ++i) tops[i] = own[first + i] > tops[i] ? own[first + i] : tops[i];
        }
        const float top = joined(tops, [](float a, float b) { return a > b ? a : b; });
        if (top == nothing) {
            std::fill(own, own + Columns, 0.0f);
            continue;
        }
        for (int first = 0; first < Columns; first += weighed_at_once) {
            for (int i = 0; i < weighed_at_once; ++i) {
                const float weight = weight_of((own[first + i] - top) * factor);
                own[first + i] = weight;
                totals[i] += weight;
            }
        }
        const float total = joined(totals, [](float a, float b) { return a + b; });
        corrections.values[row] = weight_of((row_max.values[row] - top) * factor);
        sums.values[row] = sums.values[row] * corrections.values[row] + total;
        row_max.values[row] = top;
    }
    spend_lanes(c, static_cast<double>(rows) * Columns, "simt_online_softmax");
}

template <int Rows, int Columns, class Place>
void simt_store_rows(const warp& scope, const Place& place, const fragment<float, Rows, Columns, 1>& from, int rows,
                     int columns, source here) {
    const context c = enter(scope, "simt_store_rows", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "simt_store_rows", here);
    for (int row = 0; row < rows; ++row) {
        auto* const to = place(row);
        touch_global_row(c, to, columns, global_use::write, row, "simt_store_rows", here);
        using element = std::remove_reference_t<decltype(*to)>;
        for (int i = 0; i < columns; ++i) to[i] = convert<element>(from.values[row * Columns + i]);
    }
    spend_lanes(c, static_cast<double>(rows) * columns, "store");
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
