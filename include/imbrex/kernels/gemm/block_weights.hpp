// Weights in the blocks of GGUF files, for the GEMV, the small-M GEMM and dequantisation (quantised_weights.hpp):
// integers of 4 to 6 bits (core/packed_integer.hpp) with the scales and minimums of the file (block_scales.hpp). Packing
// loses nothing.
//
//                     bits a weight                             bits a weight
//     q2_k_weights    4.63                  q6_k_weights        6.56; Q3_K too
//     q4_k_weights    4.63                  q5_1_weights        6; Q4_1 and Q5_0 too
//     q5_k_weights    5.63
//
// The tensor cores multiply the integers, which are exact in bf16 and fp16; each group's sum is scaled in fp32 as it is
// added. A minimum is multiplied by the sum of the group's activations, which the tensor cores add up too: a product
// with ones, once for all rows of a weight tile.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/gemm/block_scales.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/kernels/gemm/weight_tiles.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

namespace detail {

template <class Format, class Scales, int BlockK>
struct block_weight_tile {
    packed_tile<Format, packed_rows, BlockK> values;
    packed_row_scales<typename Scales::row> scales[BlockK / packed_columns];
    packed_row_scales<typename Scales::super_row> supers[ceil_div(BlockK, Scales::super_block)];
};
template <class Format, class Scales>
struct block_weight_subtile {
    packed_tile<Format, packed_rows, packed_columns> values;
    packed_row_scales<typename Scales::row> scales;
    packed_row_scales<typename Scales::super_row> supers;
};
template <class Format, class Scales>
struct block_weight_fragment {
    packed_values<Format, packed_columns> values;
    row_values<typename Scales::row, packed_rows, warp> scales;
    row_values<typename Scales::super_row, packed_rows, warp> supers;
};
template <class WeightTile, class WeightSubtile, int SuperBlock>
struct block_weight_source : scaled_source<WeightTile, WeightSubtile> {
    using super_scales = decltype(WeightSubtile::supers);
    cp_async_object_iterator<super_scales> supers;

    IMBREX_KERNEL block_weight_source(const warp& self, const WeightTile& first, int column)
        : scaled_source<WeightTile, WeightSubtile>(self, first, column, first.scales[column / packed_columns]),
          supers(this->values, this->behind(first.values.template columns_from<packed_columns>(column),
                                            first.supers[column / SuperBlock])) {}

    // `columns` further, in the same super-block unless that has 64 columns.
    IMBREX_KERNEL void copy_supers(const warp& self, WeightSubtile& to, int tiles, int columns) const {
        copy_async(self, to.supers, supers, std::int64_t{tiles} * static_cast<int>(sizeof(WeightTile)),
                   columns / SuperBlock * static_cast<int>(sizeof(super_scales)));
    }
};

// Activations of a subtile and, for minimums, the sums of each group, negative and divided as the weights are.
template <class In, int Rows, int Groups>
struct summed_activations : warp_tile<In, 16, packed_columns> {
    warp_tile<float, 16, Rows> sums[Groups];
};

}  // namespace detail

template <class In, class Format, class Scales, int BlockK = 256>
struct block_weights : detail::quantised_weights<detail::block_weight_tile<Format, Scales, BlockK>, In, BlockK> {
    using weight_tile = detail::block_weight_tile<Format, Scales, BlockK>;
    using format = Format;
    using scales = Scales;
    static_assert(BlockK % Scales::super_block == 0 && packed_columns % Scales::group == 0,
                  "imbrex: block_k must be a multiple of the super-block, and 64 a multiple of the group size");
    static constexpr int group = Scales::group;
    static constexpr int super_block = Scales::super_block;
    static constexpr int subtile_groups = packed_columns / group;
    using scale = typename Scales::row;  // for 64 columns
    using super_scale = typename Scales::super_row;

    // The small-M GEMM.
    template <class Sum, class Activations>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Sum& sum, const weight_tile& weights,
                                       const Activations& activations, accumulation how) {
        if (how == accumulation::replace) fill(self, sum, 0.0f);
        warpgroup_tile<In, packed_rows, group> ones;
        if constexpr (Scales::has_minimum) fill(self, ones, convert<In>(-1.0f / divisor));
        // A loop, since all subtiles at once would exceed the registers.
        for (int column = 0; column < BlockK; column += packed_columns) {
            warpgroup_tile<In, packed_rows, packed_columns> all;
            dequantise(self, all, weights.values.template columns_from<packed_columns>(column));
            row_values<scale, packed_rows, warpgroup> rows;
            imbrex::load(self, rows, weights.scales[column / packed_columns]);
            row_values<super_scale, packed_rows, warpgroup> supers;
            imbrex::load(self, supers, weights.supers[column / super_block]);
            warpgroup_tile<In, packed_rows, group> numbers[subtile_groups];
            Sum products[subtile_groups], sums[subtile_groups];
            static_for<subtile_groups>([&](auto number) {
                numbers[number] = columns_of<number * group, group>(self, all);
                const auto a = activations.template subtile<Sum::columns, group>(0, column + number * group);
                mma_abt_async(self, products[number], numbers[number], a, accumulation::replace);
                if constexpr (Scales::has_minimum) mma_abt_async(self, sums[number], ones, a, accumulation::replace);
            });
            static_for<subtile_groups>([&](auto number) {
                constexpr int left = (subtile_groups - 1 - number) * (Scales::has_minimum ? 2 : 1);
                if constexpr (Scales::has_minimum) {
                    wait_mma<left>(self, products[number], sums[number]);
                } else {
                    wait_mma<left>(self, products[number]);
                }
                add_group<number, divisor>(self, sum, products[number], sums[number], rows, supers);
            });
        }
    }

    // The fused GEMM (dequantising_tile.hpp): scaled, less minimums, rounded.
    template <int Columns>
    using weight_columns = detail::block_weight_tile<Format, Scales, Columns>;
    template <int Columns, class Slot>
    IMBREX_KERNEL static void load_columns(const warp& self, weight_columns<Columns>& to, const weight_tile& from,
                                           int column, const Slot& slot) {
        using some_scales = decltype(to.scales);
        using some_supers = decltype(to.supers);
        load_object_async(self, to.values, from.values.template columns_from<Columns>(column), slot);
        load_object_async(self, to.scales, reinterpret_cast<const some_scales&>(from.scales[column / packed_columns]),
                          slot);
        load_object_async(self, to.supers, reinterpret_cast<const some_supers&>(from.supers[column / super_block]),
                          slot);
    }
    template <int First, class Block, class Tile>
    IMBREX_KERNEL static void dequantise_block(const warpgroup& self, Block& block, const Tile& weights) {
        dequantise<First>(self, block, weights.values);
        row_values<scale, packed_rows, warpgroup> rows;
        imbrex::load(self, rows, weights.scales[First / packed_columns]);
        row_values<super_scale, packed_rows, warpgroup> supers;
        imbrex::load(self, supers, weights.supers[First / super_block]);
        static_for<subtile_groups>([&](auto number) {
            const auto factors = scales_of<number>(self, rows, supers);
            if constexpr (Scales::has_minimum) {
                scale_group<number * group, group>(self, block, factors, divisor,
                                                   minimums_of<number>(self, rows, supers));
            } else {
                scale_group<number * group, group>(self, block, factors, divisor);
            }
        });
    }

    // The GEMV.
    using weight_subtile = detail::block_weight_subtile<Format, Scales>;
    using weight_fragment = detail::block_weight_fragment<Format, Scales>;
    using source = detail::block_weight_source<weight_tile, weight_subtile, super_block>;

    IMBREX_KERNEL static source source_of(const warp& self, const weight_tile& first, int column) {
        return source(self, first, column);
    }
    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const source& from, int parts, At) {
        from.copy_values(self, to, parts, At::columns);
        from.copy_scales(self, to, parts, At::columns / packed_columns);
        from.copy_supers(self, to, parts, At::columns);
    }
    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const weight_tile& from, int column,
                                           At) {
        copy_object_async(self, to.values, from.values.template columns_from<packed_columns>(column));
        copy_object_async(self, to.scales, from.scales[column / packed_columns]);
        copy_object_async(self, to.supers, from.supers[column / super_block]);
    }
    template <class At>
    IMBREX_KERNEL static void load_fragment(const warp& self, weight_fragment& to, const weight_subtile& from, At) {
        imbrex::load(self, to.values, from.values);
        imbrex::load(self, to.scales, from.scales);
        imbrex::load(self, to.supers, from.supers);
    }

    template <int Rows>
    using activations = std::conditional_t<Scales::has_minimum, detail::summed_activations<In, Rows, subtile_groups>,
                                           warp_tile<In, 16, packed_columns>>;
    template <int Rows>
    IMBREX_KERNEL static void sum_groups(const warp& self, detail::summed_activations<In, Rows, subtile_groups>& a) {
        warp_tile<In, 16, group> ones;
        fill(self, ones, convert<In>(-1.0f / divisor));
        static_for<subtile_groups>([&](auto number) {
            fill(self, a.sums[number], 0.0f);
            mma_abt(self, a.sums[number], ones, columns_of<number * group, group>(self, a));
        });
    }
    template <int FirstRow, class Sum, class Activations, class At>
    IMBREX_KERNEL static void multiply_rows(const warp& self, Sum& sum, Sum& products, const weight_fragment& weights,
                                            const Activations& a, At) {
        warp_tile<In, 16, packed_columns> numbers;
        dequantise_rows<FirstRow>(self, numbers, weights.values);
        const auto rows = rows_of<FirstRow, 16>(self, weights.scales);
        const auto supers = rows_of<FirstRow, 16>(self, weights.supers);
        static_for<subtile_groups>([&](auto number) {
            fill(self, products, 0.0f);
            mma_abt(self, products, columns_of<number * group, group>(self, numbers),
                    columns_of<number * group, group>(self, a));
            if constexpr (Scales::has_minimum) {
                add_group<number, 1.0f>(self, sum, products, a.sums[number], rows, supers);
            } else {
                add_group<number, 1.0f>(self, sum, products, products, rows, supers);
            }
        });
    }
    // Called once per completed sum.
    template <class Sum>
    IMBREX_KERNEL static void finish(const warp& self, Sum& sum) {
        if constexpr (divisor != 1) map(self, sum, [](float value) { return value * divisor; });
    }

    // Dequantises a subtile: scales it, subtracts minimums and rounds.
    template <int FirstRow, class Put>
    IMBREX_KERNEL static void dequantise_rows_into(const warp& self, const weight_fragment& weights, const Put& put) {
        warp_tile<In, 16, packed_columns> numbers;
        dequantise_rows<FirstRow>(self, numbers, weights.values);
        const auto rows = rows_of<FirstRow, 16>(self, weights.scales);
        const auto supers = rows_of<FirstRow, 16>(self, weights.supers);
        static_for<subtile_groups>([&](auto number) {
            auto scaled = convert_to<float>(self, columns_of<number * group, group>(self, numbers));
            combine_with_rows(self, scaled, scales_of<number>(self, rows, supers),
                              [](float value, float times) { return value * divisor * times; });
            if constexpr (Scales::has_minimum)
                combine_with_rows(self, scaled, minimums_of<number>(self, rows, supers),
                                  [](float value, float minimum) { return value - minimum; });
            put(std::integral_constant<int, number * group>{}, convert_to<In>(self, scaled));
        });
    }

  private:
    static constexpr float divisor = packed_divisor<Format, In>;

    // The scales of a group as floats.
    template <int Number, class Scope, int Rows, int Warps>
    IMBREX_KERNEL static hw::row_fragment<float, Rows, Warps> scales_of(
        const Scope& self, const hw::row_fragment<scale, Rows, Warps>& rows,
        const hw::row_fragment<super_scale, Rows, Warps>& supers) {
        hw::row_fragment<float, Rows, Warps> result;
        fill(self, result, 0.0f);
        combine(self, result, rows, supers,
                [](float, scale of, super_scale in) { return Scales::scale(of, in, Number); });
        return result;
    }
    template <int Number, class Scope, int Rows, int Warps>
    IMBREX_KERNEL static hw::row_fragment<float, Rows, Warps> minimums_of(
        const Scope& self, const hw::row_fragment<scale, Rows, Warps>& rows,
        const hw::row_fragment<super_scale, Rows, Warps>& supers) {
        hw::row_fragment<float, Rows, Warps> result;
        fill(self, result, 0.0f);
        combine(self, result, rows, supers,
                [](float, scale of, super_scale in) { return Scales::minimum(of, in, Number); });
        return result;
    }

    // sum += Factor * scale * products, and with minimums += Factor * minimum * sums.
    template <int Number, float Factor, class Scope, class Sum, int Rows, int Warps>
    IMBREX_KERNEL static void add_group(const Scope& self, Sum& sum, const Sum& products, const Sum& sums,
                                        const hw::row_fragment<scale, Rows, Warps>& rows,
                                        const hw::row_fragment<super_scale, Rows, Warps>& supers) {
        const auto add = [](float total, float product, float times) {
            return hw::fma(product, times * Factor, total);
        };
        combine_with_rows(self, sum, products, scales_of<Number>(self, rows, supers), add);
        if constexpr (Scales::has_minimum)
            combine_with_rows(self, sum, sums, minimums_of<Number>(self, rows, supers), add);
    }
};

template <class In>
using q2_k_weights = block_weights<In, packed_integer<4, 0>, q2_k_scales>;
template <class In>
using q4_k_weights = block_weights<In, packed_integer<4, 0>, k_scales_with_minimums>;
template <class In>
using q5_k_weights = block_weights<In, packed_integer<5, 0>, k_scales_with_minimums>;
template <class In>
using q6_k_weights = block_weights<In, packed_integer<6, 32>, k_scales>;
template <class In>
using q5_1_weights = block_weights<In, packed_integer<5, 0>, half_scales_with_minimums, 128>;

}  // namespace imbrex
