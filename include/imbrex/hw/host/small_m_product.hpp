// small-M matrix products in the host world: the right operand is reused so rarely that packing it, as host_gemm does,
// does not pay. Its rows are float, bf16, fp16 or e4m3, are read in place and converted in registers.
//
//   scores    Q K^T. Vectors are along head_dim. A block of rows has one vector of sums per pair, and these are then
//             reduced together:
//
//                 a0 a1 a2 a3     b0 b1 b2 b3     ->     a0+a2  b0+b2  a1+a3  b1+b3       while two vectors are left
//
//   sums      P V. Vectors are along the columns of the values. The sums of two vectors of columns are in registers,
//             and each loaded value is multiplied by a weight of each row.
#pragma once

#include <imbrex/hw/host/host_gemm.hpp>
#include <imbrex/hw/host/load_as_floats.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

template <class Vectors>
class small_m_product {
  public:
    using vector = typename Vectors::vector;
    static constexpr int lanes = sizeof(vector) / sizeof(float);
    static constexpr int max_rows = 8;  // the sums fit in the registers

    // products[row * products_stride + other] = left[row] . right[other]; k is a multiple of `lanes`.
    template <class T>
    static void score(float* products, std::ptrdiff_t products_stride, const float* left, std::ptrdiff_t left_stride,
                      const T* right, std::ptrdiff_t right_stride, int rows, int others, int k) {
        for (int other = 0; other < others; other += others_at_once) {
            const T* near[others_at_once];
            for (int i = 0; i < others_at_once; ++i) near[i] = right + std::min(other + i, others - 1) * right_stride;
            const int there = std::min(others_at_once, others - other);
            for (int row = 0; row < rows; row += rows_at_once) {
                const float* own[rows_at_once];
                for (int i = 0; i < rows_at_once; ++i) own[i] = left + std::min(row + i, rows - 1) * left_stride;
                float sums[lanes];
                score_block(sums, own, near, k);
                for (int i = 0; i < std::min(rows_at_once, rows - row); ++i) {
                    float* const to = products + (row + i) * products_stride + other;
                    if (there == others_at_once) {
                        std::memcpy(to, sums + i * others_at_once, others_at_once * sizeof(float));
                    } else {
                        std::copy_n(sums + i * others_at_once, there, to);
                    }
                }
            }
        }
    }

    // sums[row * sums_stride + column] += the sum over i of weights[row * weights_stride + i] * values[i *
    // values_stride + column]; at most max_rows rows, and a multiple of `lanes` columns.
    template <class T>
    static void add_weighted(float* sums, std::ptrdiff_t sums_stride, const float* weights,
                             std::ptrdiff_t weights_stride, const T* values, std::ptrdiff_t values_stride, int rows,
                             int count, int columns) {
        for (int column = 0; column < columns; column += panel_vectors * lanes) {
            const int vectors = std::min(panel_vectors, (columns - column) / lanes);
            panels<T>[(vectors - 1) * max_rows + rows - 1](sums + column, sums_stride, weights, weights_stride,
                                                           values + column, values_stride, count);
        }
    }

  private:
    static constexpr int rows_at_once = lanes >= 16 ? 4 : 2;
    static constexpr int others_at_once = lanes / rows_at_once;
    static constexpr int panel_vectors = 2;

    // Calls body with the constants 0 ... Count - 1, so that arrays stay in registers.
    template <int Count, class Body>
    [[gnu::always_inline]] static void unroll(Body body) {
        [&]<int... Index>(std::integer_sequence<int, Index...>) {
            (body(std::integral_constant<int, Index>{}), ...);
        }
        (std::make_integer_sequence<int, Count>{});
    }
    template <class T>
    [[gnu::always_inline]] static vector load(const T* from) {
        return load_as_floats<Vectors>(from);
    }

    // sums[row * others_at_once + other]
    template <class T>
    [[gnu::flatten]] static void score_block(float* sums, const float* const (&left)[rows_at_once],
                                             const T* const (&right)[others_at_once], int k) {
        vector pairs[lanes] = {};
        for (int i = 0; i < k; i += lanes) {
            vector others[others_at_once];
            unroll<others_at_once>([&](auto other) { others[other] = load(right[other] + i); });
            unroll<rows_at_once>([&](auto row) {
                const vector own = load(left[row] + i);
                unroll<others_at_once>([&](auto other) {
                    vector& pair = pairs[row * others_at_once + other];
                    pair = own * others[other] + pair;
                });
            });
        }
        add_up<lanes>(pairs);
        std::memcpy(sums, &pairs[0], sizeof(vector));
    }
    template <int Left>
    [[gnu::always_inline]] static void add_up(vector (&all)[lanes]) {
        if constexpr (Left > 1) {
            unroll<Left / 2>([&](auto i) {
                all[i] = Vectors::zip_low(all[i], all[i + Left / 2]) + Vectors::zip_high(all[i], all[i + Left / 2]);
            });
            add_up<Left / 2>(all);
        }
    }

    template <class T, int Rows, int Columns>
    [[gnu::flatten]] static void panel(float* to, std::ptrdiff_t to_stride, const float* weights,
                                       std::ptrdiff_t weights_stride, const T* values, std::ptrdiff_t values_stride,
                                       int count) {
        vector sums[Rows][Columns];
        unroll<Rows>(
            [&](auto row) { unroll<Columns>([&](auto j) { sums[row][j] = load(to + row * to_stride + j * lanes); }); });
        for (int i = 0; i < count; ++i, values += values_stride, ++weights) {
            vector right[Columns];
            unroll<Columns>([&](auto j) { right[j] = load(values + j * lanes); });
            unroll<Rows>([&](auto row) {
                const float weight = weights[row * weights_stride];
                unroll<Columns>([&](auto j) { sums[row][j] = weight * right[j] + sums[row][j]; });
            });
        }
        unroll<Rows>([&](auto row) {
            unroll<Columns>(
                [&](auto j) { std::memcpy(to + row * to_stride + j * lanes, &sums[row][j], sizeof(vector)); });
        });
    }

    template <class T>
    using panel_function = void (*)(float*, std::ptrdiff_t, const float*, std::ptrdiff_t, const T*, std::ptrdiff_t,
                                    int);
    template <class T, std::size_t... Index>
    static constexpr auto panel_table(std::index_sequence<Index...>) {
        return std::array<panel_function<T>, sizeof...(Index)>{
            &panel<T, static_cast<int>(Index % max_rows) + 1, static_cast<int>(Index / max_rows) + 1>...};
    }
    template <class T>
    static constexpr auto panels = panel_table<T>(std::make_index_sequence<max_rows * panel_vectors>{});
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
