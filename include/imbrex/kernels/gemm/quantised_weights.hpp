// Quantised weight formats, 8 or 4 bits, for the GEMV and the small-M GEMM: int8, e4m3, int4 and MXFP4. Weights are
// prepacked once on the host (pack_weights.hpp), copied to shared memory as stored, and dequantised to bf16 or fp16 in
// registers right before the tensor cores (dequantize in American spelling; weight-only quantisation).
//
//   grouped_weights   int8, int4 or levels (iq4) with a scale per row and `Group` of K. The tensor cores multiply the integers, which
//                     are exact in bf16 and fp16, and each group's sum is scaled in fp32 as it is added: only sums are
//                     rounded
//   int8_weights      int8 with a scale per row, applied to D by an epilogue: epilogue::scale_columns first, or
//                     epilogue::scaled_glu (gemm_quantised.hpp)
//   e4m3_weights      e4m3, the same; exact in bf16 and fp16 too
//   mxfp4_weights     MXFP4: e2m1 with a ue8m0 scale per 32 of K. Scaled in registers by a power of two, exact in bf16
//
// A warpgroup processes weight tiles of 64 rows x block_k (small_m.hpp) by wgmma. A warp processes subtiles of 64 x 64
// (gemv.hpp) by mma.sync.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/gemm/weight_tiles.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/bulk.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/dequantise.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/packed_tile.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

// The best block_k for a number of rows of A. A larger one amortises the start and the wait of a step, but its
// activations take shared memory from the pipeline stages.
constexpr int quantised_block_k(int rows) {
    return rows <= 16 ? 512 : rows <= 32 ? 256 : 128;
}

namespace detail {

// Common base of the weight formats.
template <class WeightTile, class In, int BlockK>
struct quantised_weights {
    static_assert(BlockK > 0 && BlockK % packed_columns == 0,
                  "imbrex: quantised weights have a block_k of 64, 128 or more");
    using element = In;
    using argument = packed_weight_tiles<WeightTile>;
    static constexpr int block_k = BlockK;
    static constexpr bool overlaps = false;

    static argument describe(const WeightTile* parts, int rows, int k) {
        return describe_weight_tiles(parts, rows, k, BlockK);
    }

    template <class Slot>
    IMBREX_KERNEL static void load(const warp& self, WeightTile& to, const argument& from, int first_row, int step,
                                   const Slot& slot) {
        load_object_async(self, to, from.at(first_row / packed_rows, step), slot);
    }
};

// Base for weights whose products need no scaling before accumulation. `Weights` has dequantise_block<First>(self,
// tile, weight_tile) for a warpgroup, and dequantise_fragment<FirstRow>(self, tile, fragment) for a warp.
template <class Weights, class WeightTile, class In, int BlockK>
struct directly_accumulated_weights : quantised_weights<WeightTile, In, BlockK> {
    // Warp-level product of a subtile (gemv.hpp); sums are not scaled.
    static constexpr int subtile_groups = 0;
    template <int FirstRow, class Sum, class Held, class Activations, class At>
    IMBREX_KERNEL static void multiply_rows(const warp& self, Sum& sum, Sum&, const Held& weights, const Activations& a,
                                            At) {
        warp_tile<In, 16, packed_columns> numbers;
        Weights::template dequantise_fragment<FirstRow>(self, numbers, weights);
        mma_abt(self, sum, numbers, a);
    }
    template <class Sum>
    IMBREX_KERNEL static void finish(const warp&, Sum&) {}
    // Yields the dequantised weights (dequantise_weights.hpp): put(first column, tile) for 16 rows.
    template <int FirstRow, class Held, class Put>
    IMBREX_KERNEL static void dequantise_rows_into(const warp& self, const Held& weights, const Put& put) {
        warp_tile<In, 16, packed_columns> numbers;
        Weights::template dequantise_fragment<FirstRow>(self, numbers, weights);
        put(std::integral_constant<int, 0>{}, numbers);
    }

    template <class Sum, class Activations>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Sum& sum, const WeightTile& weights,
                                       const Activations& activations, accumulation how) {
        warpgroup_tile<In, packed_rows, packed_columns> blocks[BlockK / packed_columns];
        static_for<BlockK / packed_columns>([&](auto number) {
            constexpr int first = number * packed_columns;
            Weights::template dequantise_block<first>(self, blocks[number], weights);
            mma_abt_async(self, sum, blocks[number],
                          activations.template subtile<Sum::columns, packed_columns>(0, first),
                          number == 0 ? how : accumulation::add);
        });
        wait_mma(self, sum);
    }
};

}  // namespace detail

// 8-bit weights with one scale per output channel, which an epilogue applies to D.
template <class In, class Format, int BlockK>
struct channelwise_weights : detail::directly_accumulated_weights<channelwise_weights<In, Format, BlockK>,
                                                                  detail::unscaled_tile<Format, BlockK>, In, BlockK> {
    static_assert(std::is_same_v<Format, std::int8_t> || std::is_same_v<Format, e4m3>,
                  "imbrex: weights of 8 bits can have a scale for each row alone; others are scaled by groups");
    using weight_tile = detail::unscaled_tile<Format, BlockK>;
    using format = Format;
    using scale = float;  // per row; applied by the epilogue
    static constexpr int group = 0;

    template <int First, class Block, class Tile>
    IMBREX_KERNEL static void dequantise_block(const warpgroup& self, Block& block, const Tile& weights) {
        dequantise<First>(self, block, weights.values);
    }
    template <int Columns>
    using weight_columns = detail::unscaled_tile<Format, Columns>;
    template <int Columns, class Slot>
    IMBREX_KERNEL static void load_columns(const warp& self, weight_columns<Columns>& to, const weight_tile& from,
                                           int column, const Slot& slot) {
        load_object_async(self, to.values, from.values.template columns_from<Columns>(column), slot);
    }

    using weight_subtile = detail::unscaled_subtile<Format>;
    using weight_fragment = detail::unscaled_fragment<Format>;
    using source = detail::unscaled_source<weight_tile, weight_subtile>;

    IMBREX_KERNEL static source source_of(const warp& self, const weight_tile& first, int column) {
        return source(self, first, column);
    }
    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const source& from, int parts, At) {
        from.copy_values(self, to, parts, At::columns);
    }

    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const weight_tile& from, int column,
                                           At) {
        copy_object_async(self, to.values, from.values.template columns_from<packed_columns>(column));
    }
    template <class At>
    IMBREX_KERNEL static void load_fragment(const warp& self, weight_fragment& to, const weight_subtile& from, At) {
        imbrex::load(self, to.values, from.values);
    }
    template <int FirstRow, class Tile>
    IMBREX_KERNEL static void dequantise_fragment(const warp& self, Tile& to, const weight_fragment& weights) {
        dequantise_rows<FirstRow>(self, to, weights.values);
    }
};

template <class In, int BlockK = 256>
using int8_weights = channelwise_weights<In, std::int8_t, BlockK>;
template <class In, int BlockK = 256>
using e4m3_weights = channelwise_weights<In, e4m3, BlockK>;

template <class In, int BlockK = 256>
struct mxfp4_weights
    : detail::directly_accumulated_weights<mxfp4_weights<In, BlockK>, detail::mxfp4_tile<BlockK>, In, BlockK> {
    using weight_tile = detail::mxfp4_tile<BlockK>;
    using format = e2m1x2;
    using scale = ue8m0;
    static constexpr int group = packed_scale_columns;

    template <int First, class Block, class Tile>
    IMBREX_KERNEL static void dequantise_block(const warpgroup& self, Block& block, const Tile& weights) {
        dequantise<First>(self, block, weights.values, weights.scales);
    }
    template <int Columns>
    using weight_columns = detail::mxfp4_tile<Columns>;
    template <int Columns, class Slot>
    IMBREX_KERNEL static void load_columns(const warp& self, weight_columns<Columns>& to, const weight_tile& from,
                                           int column, const Slot& slot) {
        load_object_async(self, to.values, from.values.template columns_from<Columns>(column), slot);
        load_object_async(self, to.scales, from.scales.template columns_from<Columns>(column), slot);
    }

    using weight_subtile = detail::scaled_subtile<e2m1x2, packed_scales<packed_rows, packed_columns>>;
    using weight_fragment = detail::scaled_fragment<e2m1x2, packed_scale_values<packed_columns>>;
    using source = detail::scaled_source<weight_tile, weight_subtile>;

    IMBREX_KERNEL static source source_of(const warp& self, const weight_tile& first, int column) {
        return source(self, first, column, first.scales.template columns_from<packed_columns>(column));
    }
    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const source& from, int parts, At) {
        from.copy_values(self, to, parts, At::columns);
        from.copy_scales(self, to, parts, At::columns / packed_columns);
    }

    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const weight_tile& from, int column,
                                           At) {
        copy_object_async(self, to.values, from.values.template columns_from<packed_columns>(column));
        copy_object_async(self, to.scales, from.scales.template columns_from<packed_columns>(column));
    }
    template <class At>
    IMBREX_KERNEL static void load_fragment(const warp& self, weight_fragment& to, const weight_subtile& from, At) {
        imbrex::load(self, to.values, from.values);
        imbrex::load(self, to.scales, from.scales);
    }
    template <int FirstRow, class Tile>
    IMBREX_KERNEL static void dequantise_fragment(const warp& self, Tile& to, const weight_fragment& weights) {
        dequantise_rows<FirstRow>(self, to, weights.values, weights.scales);
    }
};

template <class In, class Format, int Group, class Scale = In, int BlockK = 256>
struct grouped_weights : detail::quantised_weights<detail::grouped_tile<Format, Group, Scale, BlockK>, In, BlockK> {
    static_assert(std::is_same_v<Format, std::int8_t> || std::is_same_v<Format, int4x2> || is_packed_level<Format>,
                  "imbrex: integers are scaled by groups; 4-bit floats have mxfp4_weights");
    static_assert(Group == 32 || Group == 64 || Group == 128, "imbrex: a group of weights is 32, 64 or 128 of K");
    static_assert(BlockK % Group == 0, "imbrex: block_k must be a multiple of the group size");
    using weight_tile = detail::grouped_tile<Format, Group, Scale, BlockK>;
    using format = Format;
    using scale = Scale;
    static constexpr int group = Group;
    static constexpr int groups = BlockK / Group;
    static constexpr bool has_code_book = is_packed_level<Format>;

    template <class Sum, class Activations>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Sum& sum, const weight_tile& weights,
                                       const Activations& activations, accumulation how) {
        if (how == accumulation::replace) fill(self, sum, 0.0f);
        row_values<Scale, packed_rows, warpgroup> scales[groups];
        static_for<groups>([&](auto number) { imbrex::load(self, scales[number], weights.scales[number]); });
        warpgroup_tile<In, packed_rows, Group> numbers[groups];
        Sum products[groups];
        const auto add_scaled = [&](auto number) {
            combine_with_rows(self, sum, products[number], scales[number], [](float total, float product, Scale times) {
                return hw::fma(product, factor_of(times), total);
            });
        };
        static_for<groups>([&](auto number) {
            dequantise_group<number>(self, numbers, weights);
            const auto rows = activations.template subtile<Sum::columns, Group>(0, number * Group);
            mma_abt_async(self, products[number], numbers[number], rows, accumulation::replace);
            // Waits for a group's sum only after the next group's wgmma has been issued.
            if constexpr (number > 0) {
                wait_mma<1>(self, products[number - 1]);
                add_scaled(std::integral_constant<int, number - 1>{});
            }
        });
        wait_mma(self, products[groups - 1]);
        add_scaled(std::integral_constant<int, groups - 1>{});
    }

    // The fused GEMM (dequantising_tile.hpp): weights are multiplied by their scales and rounded.
    template <int Columns>
    using weight_columns = detail::grouped_tile<Format, Group, Scale, Columns>;
    template <int Columns, class Slot>
    IMBREX_KERNEL static void load_columns(const warp& self, weight_columns<Columns>& to, const weight_tile& from,
                                           int column, const Slot& slot) {
        using some_scales = decltype(to.scales);
        load_object_async(self, to.values, from.values.template columns_from<Columns>(column), slot);
        load_object_async(self, to.scales, reinterpret_cast<const some_scales&>(from.scales[column / Group]), slot);
    }
    template <int First, class Block, class Tile>
    IMBREX_KERNEL static void dequantise_block(const warpgroup& self, Block& block, const Tile& weights) {
        constexpr int groups_of_block = Group < packed_columns ? packed_columns / Group : 1;
        constexpr int columns = packed_columns / groups_of_block;
        dequantise<First>(self, block, weights.values);
        static_for<groups_of_block>([&](auto number) {
            row_values<Scale, packed_rows, warpgroup> scales;
            imbrex::load(self, scales, weights.scales[First / Group + number]);
            scale_group<number * columns, columns>(self, block, scales, packed_divisor<Format, In>);
        });
    }

    // A subtile has one scale per row, or two with groups of 32. If a group spans several subtiles, their products are
    // summed before scaling, and the last subtile brings the scales.
    static constexpr int subtile_groups = Group < packed_columns ? packed_columns / Group : 1;
    static constexpr int subtile_group_k = packed_columns / subtile_groups;
    struct subtile_scales {
        packed_row_scales<Scale> of[subtile_groups];
    };
    struct fragment_scales {
        row_values<Scale, packed_rows, warp> of[subtile_groups];
    };
    using weight_subtile = detail::scaled_subtile<Format, subtile_scales>;
    using weight_fragment = detail::scaled_fragment<Format, fragment_scales>;
    using source = detail::scaled_source<weight_tile, weight_subtile>;

    IMBREX_KERNEL static source source_of(const warp& self, const weight_tile& first, int column) {
        return source(self, first, column, reinterpret_cast<const subtile_scales&>(first.scales[column / Group]));
    }
    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const source& from, int parts, At) {
        from.copy_values(self, to, parts, At::columns);
        if constexpr (At::ends(Group)) from.copy_scales(self, to, parts, At::columns / (Group * subtile_groups));
    }

    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const weight_tile& from, int column,
                                           At) {
        copy_object_async(self, to.values, from.values.template columns_from<packed_columns>(column));
        if constexpr (At::ends(Group)) {
            for (int i = 0; i < subtile_groups; ++i) {
                copy_object_async(self, to.scales.of[i], from.scales[column / Group + i]);
            }
        }
    }
    template <class At>
    IMBREX_KERNEL static void load_fragment(const warp& self, weight_fragment& to, const weight_subtile& from, At) {
        imbrex::load(self, to.values, from.values);
        if constexpr (At::ends(Group)) {
            static_for<subtile_groups>(
                [&](auto number) { imbrex::load(self, to.scales.of[number], from.scales.of[number]); });
        }
    }
    template <int FirstRow, class Sum, class Activations, class At>
    IMBREX_KERNEL static void multiply_rows(const warp& self, Sum& sum, Sum& products, const weight_fragment& weights,
                                            const Activations& a, At) {
        warp_tile<In, 16, packed_columns> numbers;
        dequantise_rows<FirstRow>(self, numbers, weights.values);
        static_for<subtile_groups>([&](auto number) {
            if constexpr (At::begins(Group)) fill(self, products, 0.0f);
            mma_abt(self, products, columns_of<number * subtile_group_k, subtile_group_k>(self, numbers),
                    columns_of<number * subtile_group_k, subtile_group_k>(self, a));
            if constexpr (At::ends(Group)) {
                combine_with_rows(self, sum, products, rows_of<FirstRow, 16>(self, weights.scales.of[number]),
                                  [](float total, float product, Scale times) {
                                      return hw::fma(product, convert<float>(times), total);
                                  });
            }
        });
    }
    // Called once per completed sum.
    template <class Sum>
    IMBREX_KERNEL static void finish(const warp& self, Sum& sum) {
        if constexpr (comes_smaller) map(self, sum, [](float value) { return value * packed_int4_divisor<In>; });
    }

    // Dequantises a subtile that has its scales with it: multiplies by the scales and rounds.
    template <int FirstRow, class Put>
    IMBREX_KERNEL static void dequantise_rows_into(const warp& self, const weight_fragment& weights, const Put& put) {
        warp_tile<In, 16, packed_columns> numbers;
        dequantise_rows<FirstRow>(self, numbers, weights.values);
        static_for<subtile_groups>([&](auto number) {
            auto scaled = convert_to<float>(self, columns_of<number * subtile_group_k, subtile_group_k>(self, numbers));
            combine_with_rows(self, scaled, rows_of<FirstRow, 16>(self, weights.scales.of[number]),
                              [](float value, Scale times) { return value * factor_of(times); });
            put(std::integral_constant<int, number * subtile_group_k>{}, convert_to<In>(self, scaled));
        });
    }

  private:
    static constexpr bool comes_smaller = std::is_same_v<Format, int4x2>;
    // The factor for a group's sums.
    IMBREX_KERNEL static float factor_of(Scale scale) {
        return convert<float>(scale) * (comes_smaller ? packed_int4_divisor<In> : 1.0f);
    }
    // Groups of 32 are dequantised in pairs.
    template <int Number>
    IMBREX_KERNEL static void dequantise_group(const warpgroup& self,
                                               warpgroup_tile<In, packed_rows, Group> (&numbers)[groups],
                                               const weight_tile& weights) {
        constexpr int first = Number * Group;
        if constexpr (Group >= packed_columns) {
            dequantise<first>(self, numbers[Number], weights.values);
        } else if constexpr (first % packed_columns == 0) {
            warpgroup_tile<In, packed_rows, packed_columns> two;
            dequantise<first>(self, two, weights.values);
            numbers[Number] = columns_of<0, Group>(self, two);
            numbers[Number + 1] = columns_of<Group, Group>(self, two);
        }
    }
};

template <class In, int Group = 128, class Scale = In, int BlockK = 256>
using int4_weights = grouped_weights<In, int4x2, Group, Scale, BlockK>;

}  // namespace imbrex
