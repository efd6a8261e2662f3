// CPU GEMV / GEMM with staged rows in the host world: sums[m][n] += x[m] . W[n]. The register block is four weight rows
// by one, two or four rows of x: each vector of x is multiplied by four vectors of weights, each of those by as many of
// x, and there are enough sums to hide the latency of an FMA. With more rows of x the weights are first converted to
// float, once for all rows.
//
// The order of summation does not depend on the number of rows, so the result of a row has the same bits whatever rows
// are beside it: a vector of sums covers 1024 columns, unit by unit and sub-vector by sub-vector, and is then reduced
// by `sum_each`. (For grouped weights with unquantised x this holds among up to four rows and among more than four:
// weights converted to float are scaled before the product, the others after it.)
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/group_scale_row.hpp>
#include <imbrex/hw/host/grouped_int8_gemv.hpp>
#include <imbrex/hw/host/interleaved_weights.hpp>
#include <imbrex/hw/host/row_staging.hpp>
#include <imbrex/hw/host/scalar.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

// Accumulators: one row per row of x, one column per weight row.
template <int Rows, int Columns>
struct gemv_accumulator_fragment : fragment_storage<float, Rows * Columns> {
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
};

// A block of a weight matrix that is multiplied at once.
template <class Weights>
struct weight_block {
    const Weights& all;
    int row, column;    // first of the block
    int rows, columns;  // in bounds
};

template <class Vectors, class Weights>
struct simd_gemv {
    using vectors = simd_operations<Vectors>;
    using floats = typename vectors::floats;
    using words = typename vectors::words;
    using integers = typename vectors::integers;
    using of = interleaved_weights<Vectors, Weights>;
    using bytes = int8_dot<Vectors>;
    using staging = row_staging<Vectors, Weights>;
    using scales = group_scale_row<Vectors, Weights>;
    static constexpr int lanes = vectors::lanes;
    static constexpr int unit = staging::unit;
    static constexpr bool grouped = of::words_in_group > 0;
    static constexpr bool rounded = Weights::activations == activation_quantisation::int8;
    static constexpr int at_once = 4;          // weight rows
    static constexpr int part_columns = 1024;  // after which sums are reduced

    // A weight row, read in units.
    struct weight_row {
        const unsigned char* values;
        int whole, rest;  // full units, and remaining columns

        weight_row(const weight_block<Weights>& piece, int row)
            : values(reinterpret_cast<const unsigned char*>(piece.all.at(piece.row + row, piece.column))),
              whole(piece.columns / unit),
              rest(piece.columns % unit) {}
        [[gnu::always_inline]] words load(int number) const {
            return vectors::template load<words>(values + static_cast<std::ptrdiff_t>(number) * vectors::bytes);
        }
        // Prefetches the next row: the hardware prefetcher does not cross page boundaries.
        [[gnu::always_inline]] words load_and_prefetch(int number, std::ptrdiff_t distance = 4096) const {
            __builtin_prefetch(values + static_cast<std::ptrdiff_t>(number) * vectors::bytes + distance, 0, 2);
            return load(number);
        }
        // Zeros after the last column.
        words load_rest() const {
            return vectors::template load_some<words>(values + static_cast<std::ptrdiff_t>(whole) * vectors::bytes,
                                                      rest * vectors::bytes / unit);
        }
    };

    // sums[m * stride + n] += x[m] . weights[n] for Rows rows of x from `first` on and up to four weight rows; x is
    // staged from this column on.
    template <int Rows, class Staged>
    [[gnu::flatten]] static void multiply(float* sums, int stride, const Staged& x, int first, int column,
                                          const weight_block<Weights>& piece) {
        floats all[std::max(Staged::block_k / part_columns, 1)][Rows * at_once];
        const int parts = ceil_div(piece.columns, part_columns);
        // Grouped weights: each row as a whole, so memory is read sequentially.
        if constexpr (staging::by_groups) {
            constexpr int together = grouped_int8_gemv<Vectors, Weights>::rows_at_once;
            if (piece.rows <= at_once - together) {
                for (auto& some : all) std::fill(std::begin(some), std::end(some), floats{});
            }
            for (int n = 0; n < piece.rows; n += together) {
                for (int i = 0; i < parts; ++i) {
                    multiply_grouped_int8<Rows>(all[i] + n, x, first, column + i * part_columns, part_of(piece, i), n);
                }
            }
        } else if constexpr (grouped) {
            for (int n = 0; n < at_once; ++n) {
                for (int i = 0; i < parts; ++i) {
                    if (n >= piece.rows) {
                        for (int m = 0; m < Rows; ++m) all[i][m * at_once + n] = floats{};
                        continue;
                    }
                    multiply_groups<Rows>(all[i] + n, x, first, (column + i * part_columns) / unit, part_of(piece, i),
                                          n);
                }
            }
        } else {
            for (int i = 0; i < parts; ++i) {
                const float* const values = x.values + first * Staged::row_stride + column + i * part_columns;
                multiply_rows<Rows, Staged>(all[i], values, part_of(piece, i));
            }
        }
        for (int i = 0; i < parts; ++i) {
            float found[Rows * at_once];
            vectors::template sum_each<Rows * at_once>(found, all[i]);
            for (int m = 0; m < Rows; ++m) {
                for (int n = 0; n < piece.rows; ++n) sums[(first + m) * stride + n] += found[m * at_once + n];
            }
        }
    }

    // The `number`-th block of columns that are reduced together.
    static weight_block<Weights> part_of(const weight_block<Weights>& piece, int number) {
        const int before = number * part_columns;
        return {piece.all, piece.row, piece.column + before, piece.rows,
                std::min(part_columns, piece.columns - before)};
    }

    template <int Rows, class Staged>
    [[gnu::always_inline]] static void multiply_rows(floats (&to)[Rows * at_once], const float* values,
                                                     const weight_block<Weights>& piece) {
        // Out-of-bounds rows repeat the last row.
        const auto row = [&](int i) { return std::min(i, piece.rows - 1); };
        const weight_row weights[at_once] = {{piece, row(0)}, {piece, row(1)}, {piece, row(2)}, {piece, row(3)}};
        floats all[Rows * at_once] = {};
        const auto add = [&](int number, auto load) {
            vectors::template unroll<at_once>([&](auto n) {
                const words some = load(weights[n]);
                vectors::template unroll<of::interleave>([&](auto p) {
                    const floats own = of::template deinterleave<p>(some);
                    vectors::template unroll<Rows>([&](auto m) {
                        all[m * at_once + n] += own * vectors::template load<floats>(values + m * Staged::row_stride +
                                                                                     number * unit + p * lanes);
                    });
                });
            });
        };
        const int whole = weights[0].whole;
        // The next data follows the rows that are read side by side.
        const std::ptrdiff_t distance = at_once * (weights[1].values - weights[0].values);
        for (int number = 0; number < whole; ++number) {
            add(number, [&](const weight_row& one) {
                // Float weights with several rows of x are mostly converted weights, already in cache.
                return of::interleave == 1 && Rows > 1 ? one.load(number) : one.load_and_prefetch(number, distance);
            });
        }
        if (weights[0].rest > 0) add(whole, [&](const weight_row& one) { return one.load_rest(); });
        vectors::template unroll<Rows * at_once>([&](auto i) { to[i] = all[i]; });
    }
    template <class Staged>
    static void multiply_all(float* sums, int stride, const Staged& x, int rows, int column,
                             const weight_block<Weights>& piece) {
        int m = 0;
        for (; m + 4 <= rows; m += 4) multiply<4>(sums, stride, x, m, column, piece);
        for (; m + 2 <= rows; m += 2) multiply<2>(sums, stride, x, m, column, piece);
        if (m < rows) multiply<1>(sums, stride, x, m, column, piece);
    }

    // all[m * at_once + i] = x[m] . weights[n + i] for the rows that are processed together, with vectors no longer
    // than a group.
    template <int Rows, class Staged>
    [[gnu::always_inline]] static void multiply_grouped_int8(floats* all, const Staged& x, int first, int column,
                                                             const weight_block<Weights>& piece, int n) {
        using products = grouped_int8_gemv<Vectors, Weights>;
        typename products::weight_rows weights;
        for (int i = 0; i < products::rows_at_once; ++i) {
            // Out-of-bounds rows repeat the last row.
            const int row = std::min(n + i, piece.rows - 1);
            weights.values[i] = weight_row(piece, row).values;
            weights.scales[i] = scales(piece, row).values;
        }
        products::template multiply<Rows>(all, at_once, x, first, column / weight_group_size, weights,
                                          piece.columns / weight_group_size);
    }

    // all[m * at_once] = x[m] . weights, group by group: each group's sum has its own scale. x is staged from this unit
    // on.
    template <int Rows, class Staged>
    [[gnu::always_inline]] static void multiply_groups(floats* all, const Staged& x, int first, int base,
                                                       const weight_block<Weights>& piece, int n) {
        const weight_row weights(piece, n);
        const scales scale(piece, n);
        floats sums[Rows] = {};
        add_units<Rows>(sums, x, first, base, weights, scale);
        for (int m = 0; m < Rows; ++m) all[m * at_once] = sums[m];
    }
    template <int Rows, class Staged, class Scales>
    [[gnu::always_inline]] static void add_units(floats (&sums)[Rows], const Staged& x, int first, int base,
                                                 const weight_row& weights, const Scales& scales) {
        for (int group = 0; group < scales.groups; group += Scales::at_once) {
            floats scale[Scales::units_at_once];
            scales.spread(scale, group);
            const auto add = [&](int u, int number, words some) {
                vectors::template unroll<Rows>(
                    [&](auto m) { sums[m] += products(x, first + m, base + number, some) * scale[u]; });
            };
            const int number = group * weight_group_size / unit;
            const int count = std::min(Scales::units_at_once, weights.whole - number);
            for (int u = 0; u < count; ++u) add(u, number + u, weights.load_and_prefetch(number + u));
            if (count < Scales::units_at_once && weights.rest > 0) add(count, number + count, weights.load_rest());
        }
    }

    // One unit, without the scales of its weights.
    template <class Staged>
    [[gnu::always_inline]] static floats products(const Staged& x, int row, int number, words some) {
        const auto* const values = x.values + row * Staged::row_stride + number * unit;
        const auto* const initial_sums = x.initial_sums + row * Staged::initial_stride + number * lanes;
        if constexpr (rounded) {
            integers sum = vectors::template load<integers>(initial_sums);
            if constexpr (staging::byte_interleave == 2) {
                bytes::add(sum, some & 0x0f0f0f0fU, vectors::template load<words>(values));
                bytes::add(sum, (some >> 4) & 0x0f0f0f0fU, vectors::template load<words>(values + vectors::bytes));
            } else {
                bytes::add(sum, some ^ (staging::byte_offset * 0x01010101U), vectors::template load<words>(values));
            }
            return vectors::to_floats(sum) *
                   vectors::template load<floats>(x.scales + row * Staged::initial_stride + number * lanes);
        } else {
            floats sum = {};
            if constexpr (of::offset != 0) sum = vectors::template load<floats>(initial_sums);
            vectors::template unroll<of::interleave>([&](auto p) {
                sum += of::template deinterleave<p>(some) * vectors::template load<floats>(values + p * lanes);
            });
            return sum;
        }
    }

    // Converts a weight row to float, in interleaved order.
    [[gnu::flatten]] static void make_floats(float* to, const weight_block<Weights>& piece, int n) {
        const weight_row weights(piece, n);
        const auto put = [&](int number, words some, [[maybe_unused]] floats scale) {
            vectors::template unroll<of::interleave>([&](auto p) {
                floats values = of::template deinterleave<p>(some);
                if constexpr (grouped) values = (values - of::offset / of::x_factor(p)) * scale;
                std::memcpy(to + number * unit + p * lanes, &values, sizeof values);
            });
        };
        const auto put_all = [&](int first, int most, const floats* scale) {
            const int end = std::min(first + most, weights.whole);
            for (int number = first; number < end; ++number) {
                put(number, weights.load_and_prefetch(number), scale[grouped ? number - first : 0]);
            }
            if (end < first + most && weights.rest > 0) put(end, weights.load_rest(), scale[grouped ? end - first : 0]);
        };
        if constexpr (grouped) {
            const scales all(piece, n);
            for (int group = 0; group < all.groups; group += scales::at_once) {
                floats scale[scales::units_at_once];
                all.spread(scale, group);
                put_all(group * weight_group_size / unit, scales::units_at_once, scale);
            }
        } else {
            const floats none = {};
            put_all(0, weights.whole + 1, &none);
        }
    }
};

// The bytes of staged rows that an operation touches.
template <class Staged>
void touch_staged(const context& c, const Staged& staged, int rows, int columns, bool writes, const char* what,
                  source here) {
    if (!c.checked() || columns <= 0) return;
    using weights = typename Staged::weights;
    const int all = row_staging<native_simd, weights>::padded(columns);
    const auto touch_all = [&](const auto* values, int count) {
        touch_value(c, values, count * static_cast<int>(sizeof *values), writes, what, here);
    };
    for (int row = 0; row < rows; ++row) {
        touch_all(staged.values + row * Staged::row_stride, all);
        if constexpr (weights::activations == activation_quantisation::int8) {
            touch_all(staged.scales + row * Staged::initial_stride,
                      all / row_staging<native_simd, weights>::columns_per_initial);
        }
    }
}

// The weights, and the scales of their groups, that a product reads from global memory.
template <class Weights>
void touch_weights(const context& c, const weight_block<Weights>& weights, const char* what, source here) {
    if (!c.checked()) return;
    for (int row = weights.row; row < weights.row + weights.rows; ++row) {
        int values = weights.columns;
        if constexpr (requires { Weights::values_per_byte; }) {
            values /= Weights::values_per_byte;
            touch_global_values(c, weights.all.scale_at(row, weights.column), weights.columns / weight_group_size,
                                global_use::read, 0, what, here);
        }
        touch_global_values(c, weights.all.at(row, weights.column), values, global_use::read, 0, what, here);
    }
}
// Rows of x or of the result.
template <class Place>
void touch_rows(const context& c, const Place& place, int rows, int columns, global_use how, const char* what,
                source here) {
    for (int row = 0; c.checked() && row < rows; ++row) {
        touch_global_row(c, place(row), columns, how, row, what, here);
    }
}

// Stages `columns` columns of the row at `place(row)`, padded with zeros.
template <class Staged, class Place>
void stage_rows(const warp& scope, Staged& to, Place&& place, int rows, int columns, source here) {
    const context c = enter(scope, "staging of rows", here);
    if (!c) return;
    const int there = std::min(columns, Staged::block_k);
    touch_staged(c, to, rows, there, true, "staging of rows", here);
    touch_rows(c, place, rows, there, global_use::read, "staging of rows", here);
    for (int row = 0; row < rows; ++row) {
        row_staging<native_simd, typename Staged::weights>::stage(to, row, place(row), there);
    }
    spend_lanes(c, rows * there, "load");
}

template <int Rows, int Columns>
void fill_accumulator(const warp& scope, gemv_accumulator_fragment<Rows, Columns>& sums, float value, source here) {
    const context c = enter_registers(scope, "fill of sums", here);
    if (!c) return;
    touch_fragment(c, sums, use::write, "fill of sums", here);
    std::fill(std::begin(sums.values), std::end(sums.values), value);
}

// The products of staged rows with up to four weight rows.
template <class Staged, class Weights>
void add_some(float* sums, int stride, const Staged& x, int rows, const weight_block<Weights>& piece) {
    using products = simd_gemv<native_simd, Weights>;
    using float_weights = unquantised_weight_rows<float>;
    if constexpr (Weights::activations == activation_quantisation::none && !std::is_same_v<Weights, float_weights>) {
        constexpr int part = products::part_columns;
        for (int i = 0; rows > 4 && i * part < piece.columns; ++i) {
            // Not a power of two: rows would map to the same cache sets.
            constexpr int distance = part + 16;
            alignas(64) float unpacked[products::at_once * distance];
            const weight_block<Weights> some = products::part_of(piece, i);
            for (int n = 0; n < some.rows; ++n) products::make_floats(unpacked + n * distance, some, n);
            const int all = products::staging::padded(some.columns);
            const float_weights floats{unpacked, some.rows, all, distance};
            simd_gemv<native_simd, float_weights>::multiply_all(
                sums, stride, x, rows, i * part, weight_block<float_weights>{floats, 0, 0, some.rows, all});
        }
        if (rows > 4) return;
    }
    products::multiply_all(sums, stride, x, rows, 0, piece);
}

// sums[m][n] += x[m] . weights[n] for the rows in bounds, over the columns of the block.
template <int Rows, int Columns, class Staged, class Weights>
void accumulate_products(const warp& scope, gemv_accumulator_fragment<Rows, Columns>& sums, const Staged& x, int rows,
                         const weight_block<Weights>& weights, bool, source here) {
    const context c = enter(scope, "GEMV products", here);
    if (!c) return;
    touch_fragment(c, sums, use::update, "GEMV products", here);
    touch_staged(c, x, rows, weights.columns, false, "GEMV products", here);
    touch_weights(c, weights, "GEMV products", here);
    constexpr int at_once = simd_gemv<native_simd, Weights>::at_once;
    for (int n = 0; n < weights.rows; n += at_once) {
        const int some = std::min(at_once, weights.rows - n);
        add_some(sums.values + n, Columns, x, rows,
                 weight_block<Weights>{weights.all, weights.row + n, weights.column, some, weights.columns});
    }
    spend_lanes(c, rows * weights.rows * weights.columns, "elementwise");
}

// Nothing to reduce here: sums are complete.
template <int Rows, int Columns>
void reduce_accumulator(const warp& scope, gemv_accumulator_fragment<Rows, Columns>& sums, source here) {
    const context c = enter(scope, "reduction of sums", here);
    if (c) touch_fragment(c, sums, use::update, "reduction of sums", here);
}

// place(m)[n] = function(n, sum), rounded once, in bounds.
template <int Rows, int Columns, class Place, class Function>
void store_accumulator(const warp& scope, Place&& place, const gemv_accumulator_fragment<Rows, Columns>& sums, int rows,
                       int columns, Function&& function, source here) {
    const context c = enter(scope, "store of sums", here);
    if (!c) return;
    touch_fragment(c, sums, use::read, "store of sums", here);
    touch_rows(c, place, rows, columns, global_use::write, "store of sums", here);
    for (int m = 0; m < rows; ++m) {
        auto* const to = place(m);
        for (int n = 0; n < columns; ++n) {
            to[n] = convert<std::remove_pointer_t<decltype(place(m))>>(function(n, sums.values[m * Columns + n]));
        }
    }
    spend_lanes(c, rows * columns, "store");
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
