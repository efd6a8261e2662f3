// Fixtures of the GEMM tests: matrices with gaps that must stay untouched, and the float64 reference.
#pragma once

#include <imbrex/kernels/gemm/problem.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

namespace imbrex_test {

using imbrex::bf16;
using imbrex::e4m3;
using imbrex::fp16;
using imbrex::matrix_layout;

inline double number(double value) {
    return value;
}
template <class T>
double number(T value) {
    return static_cast<double>(imbrex::convert<float>(value));
}

// Sizes, strides and batches of a GEMM.
struct gemm_case {
    int m, n, k;
    int batches = 1;
    int a_gap = 0, b_gap = 0, out_gap = 0;  // elements between rows
    bool share_b = false;                   // one B for all batches
    int offset = 0;                         // elements before the first, in every matrix
};

template <class In, class Out, matrix_layout A, matrix_layout B, bool IsGlu>
struct gemm_matrices {
    gemm_case sizes;
    world where;
    int b_columns = sizes.n * (IsGlu ? 2 : 1);
    int a_rows = A == matrix_layout::row_major ? sizes.m : sizes.k,
        a_columns = A == matrix_layout::row_major ? sizes.k : sizes.m;
    int b_rows = B == matrix_layout::row_major ? sizes.k : b_columns,
        b_width = B == matrix_layout::row_major ? b_columns : sizes.k;
    std::int64_t a_stride = a_columns + sizes.a_gap, b_stride = b_width + sizes.b_gap;
    std::int64_t out_stride = sizes.n + sizes.out_gap;
    buffer<In> a, b;
    buffer<Out> out;

    gemm_matrices(world where, const gemm_case& sizes, unsigned seed, float spread = 1)
        : sizes(sizes),
          where(where),
          a(where, sizes.offset + a_rows * a_stride * sizes.batches),
          b(where, sizes.offset + b_rows * b_stride * (sizes.share_b ? 1 : sizes.batches)),
          out(where, sizes.offset + sizes.m * out_stride * sizes.batches, poison()) {
        fill_random(a.values, seed, -spread, spread);
        fill_random(b.values, seed + 1, -spread, spread);
    }

    static Out poison() {
        if constexpr (std::is_integral_v<Out>) {
            return Out(-77);
        } else {
            return imbrex::convert<Out>(NAN);
        }
    }

    imbrex::gemm_problem<In, Out> upload() {
        imbrex::gemm_problem<In, Out> p;
        p.m = sizes.m;
        p.n = sizes.n;
        p.k = sizes.k;
        p.batches = sizes.batches;
        const bool many = sizes.batches > 1;
        p.a = {a.upload() + sizes.offset, a_stride, many ? a_rows * a_stride : 0};
        p.b = {b.upload() + sizes.offset, b_stride, many && !sizes.share_b ? b_rows * b_stride : 0};
        p.out = {out.upload() + sizes.offset, out_stride, many ? sizes.m * out_stride : 0};
        return p;
    }

    double a_at(int batch, int row, int i) const {
        const std::int64_t place = A == matrix_layout::row_major ? row * a_stride + i : i * a_stride + row;
        return number(a.values[sizes.offset + batch * a_rows * a_stride + place]);
    }
    double b_at(int batch, int i, int column) const {
        const std::int64_t place = B == matrix_layout::row_major ? i * b_stride + column : column * b_stride + i;
        return number(b.values[sizes.offset + (sizes.share_b ? 0 : batch * b_rows * b_stride) + place]);
    }
    // A by rows and B by columns, as doubles: the operands of the reference.
    std::vector<double> a_rows_of(int batch) const {
        std::vector<double> values(static_cast<std::size_t>(sizes.m) * sizes.k);
        for (int row = 0; row < sizes.m; ++row) {
            for (int i = 0; i < sizes.k; ++i) values[static_cast<std::size_t>(row) * sizes.k + i] = a_at(batch, row, i);
        }
        return values;
    }
    std::vector<double> b_columns_of(int batch) const {
        std::vector<double> values(static_cast<std::size_t>(b_columns) * sizes.k);
        for (int column = 0; column < b_columns; ++column) {
            for (int i = 0; i < sizes.k; ++i) {
                values[static_cast<std::size_t>(column) * sizes.k + i] = b_at(batch, i, column);
            }
        }
        return values;
    }
    double out_at(int batch, int row, int column) const {
        return number(out.values[sizes.offset + (std::int64_t{batch} * sizes.m + row) * out_stride + column]);
    }

    // The largest of |result - expected| / (1 + |expected|) over D, with expected(product, up, batch, row, column). NaN
    // and any write outside of D count as infinite.
    double worst(const std::function<double(double, double, int, int, int)>& expected) {
        return largest_error(
            [&](const double* x, const double* gate, const double* up, int batch, int row, int column) {
                const auto product = [&](const double* y) {
                    double sum = 0;
                    for (int i = 0; i < sizes.k; ++i) sum += x[i] * y[i];
                    return sum;
                };
                const double right = expected(product(gate), IsGlu ? product(up) : 0, batch, row, column);
                return std::abs(out_at(batch, row, column) - right) / (1 + std::abs(right));
            });
    }

    // For D[row, column] = sum over k of scale(batch, row, column, k) * a * b: the largest error in units of its bound,
    // at most 1 if every output is within
    //
    //     accumulation * (sum over k of |scale * a * b|) + rounding to the type of D
    //
    // The error of an accumulator is proportional to the magnitudes that are added. Where they cancel, any limit in
    // parts of the result is either exceeded by a correct kernel or too loose for the other outputs.
    template <class Scale>
    double worst_in_bounds(double accumulation, const Scale& scale) {
        return largest_error([&](const double* x, const double* y, const double*, int batch, int row, int column) {
            double sum = 0, magnitude = 0;
            for (int i = 0; i < sizes.k; ++i) {
                const double product = scale(batch, row, column, i) * x[i] * y[i];
                sum += product;
                magnitude += std::abs(product);
            }
            const double limit = accumulation * magnitude;
            return std::abs(out_at(batch, row, column) - sum) / (limit + rounding_of(std::abs(sum) + limit));
        });
    }

    // Half a unit in the last place of a value of at most this magnitude in the type of D.
    static double rounding_of(double magnitude) {
        if constexpr (std::is_same_v<Out, float>) {
            return magnitude * 0x1p-24;
        } else if constexpr (std::is_same_v<Out, bf16>) {
            return magnitude * 0x1p-8;
        } else if constexpr (std::is_same_v<Out, fp16>) {
            return std::max(magnitude * 0x1p-11, 0x1p-25);
        } else {
            static_assert(std::is_same_v<Out, e4m3>, "a floating-point type");
            return std::max(magnitude * 0x1p-4, 0x1p-10);
        }
    }

    // The largest error(row of A, column of B, column of the up matrix, batch, row, column), checking also that the
    // gaps between rows of D are untouched.
    template <class Error>
    double largest_error(const Error& error_of) {
        out.download();
        double found = 0;
        const auto note = [&](double error) { found = error <= found ? found : std::isnan(error) ? INFINITY : error; };
        for (int batch = 0; batch < sizes.batches; ++batch) {
            const std::vector<double> rows = a_rows_of(batch), columns = b_columns_of(batch);
            for (int row = 0; row < sizes.m; ++row) {
                const double* x = rows.data() + static_cast<std::size_t>(row) * sizes.k;
                for (int column = 0; column < sizes.n; ++column) {
                    const double* y = columns.data() + static_cast<std::size_t>(column) * sizes.k;
                    const double* up = IsGlu ? y + static_cast<std::size_t>(sizes.n) * sizes.k : y;
                    note(error_of(x, y, up, batch, row, column));
                }
                for (int gap = 0; gap < sizes.out_gap; ++gap) {
                    if (!untouched(out_at(batch, row, sizes.n + gap))) note(INFINITY);
                }
            }
        }
        return found;
    }
    static bool untouched(double value) {
        const double before = number(poison());
        return value == before || (std::isnan(value) && std::isnan(before));
    }
};

inline double as_product(double product, double, int, int, int) {
    return product;
}

}  // namespace imbrex_test
