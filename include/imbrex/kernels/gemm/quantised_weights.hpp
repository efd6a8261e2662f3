// Weights of 8 or 4 bits for GEMMs of few rows, whose time is the reading of them: packed once on the host (pack_weights.hpp),
// brought to shared memory as they lie, and made into bf16 or fp16 in registers on the way to the tensor cores.
//
//   grouped_weights   int8 or int4, a scale for each row and `Group` of K. The tensor cores multiply the integers, exact in
//                     bf16 and in fp16, and each group's sum is scaled in fp32 as it is added: nothing is rounded but sums.
//                     (With int4 and up to 16 rows of bf16, activations must be less than 2^64.)
//   int8_weights      int8, a scale for each row, to be applied to D: an epilogue that begins with scaled_columns, or a
//                     gated one with gated_and_scaled (gemm_quantised.hpp)
//   e4m3_weights      e4m3, the same; exact in bf16 and in fp16 too
//   mxfp4_weights     e2m1 with a ue8m0 scale for each 32 of K: scaled in registers, by a power of two, so exact too
//
// A warpgroup takes parts of 64 rows and a step of K (few_rows.hpp): up to 16 rows of A are multiplied by mma.sync, which the
// compiler weaves into the dequantisation, more by wgmma. A warp takes pieces of 64 x 64 (weight_stream.hpp), by mma.sync.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/gemm/packed_parts.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/bulk.hpp>
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

// How deep a step should be with so many rows of A: a deep one has less to begin and to wait for, but the rows of A that go
// with it take shared memory from the stages.
constexpr int quantised_depth(int rows) {
    return rows <= 16 ? 512 : rows <= 32 ? 256 : 128;
}

namespace detail {

// What all of them do alike.
template <class Part, class In, int Depth>
struct quantised_weights {
    static_assert(Depth > 0 && Depth % packed_columns == 0,
                  "imbrex: quantised weights have a depth of 64, 128 or more");
    using element = In;
    using argument = packed_parts<Part>;
    static constexpr int depth = Depth;
    static constexpr bool overlaps = false;

    static argument describe(const Part* parts, int rows, int k) { return describe_parts(parts, rows, k, Depth); }

    template <class Slot>
    IMBREX_KERNEL static void load(const warp& self, Part& to, const argument& from, int first_row, int step,
                                   const Slot& slot) {
        load_object_async(self, to, from.at(first_row / packed_rows, step), slot);
    }
};

// Calls f(constant) for the constants from 0 to Count - 1.
template <int Count, class F>
IMBREX_KERNEL void for_each_constant(const F& f) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
        (f(std::integral_constant<int, I>{}), ...);
    }
    (std::make_integer_sequence<int, Count>{});
}

// Calls f(constant column, constant part) for sixteen columns after sixteen, and for each of them all parts: products that follow
// each other are then of different sums, and none waits for the one before.
template <int FirstColumn, int Columns, int Parts, class F>
IMBREX_KERNEL void for_each_sixteen(const F& f) {
    for_each_constant<Columns / 16 * Parts>([&](auto i) {
        f(std::integral_constant<int, FirstColumn + i / Parts * 16>{}, std::integral_constant<int, i % Parts>{});
    });
}

// Of weights that are multiplied as they are (weight_stream.hpp): activations and sums are left alone, and there is nothing to amend.
template <class Sum>
struct no_amends {};
struct multiplied_plainly {
    static constexpr int scale_registers = 0;
    template <class Sum>
    using amends = no_amends<Sum>;
    template <class Sum>
    IMBREX_KERNEL static void begin(const warp&, no_amends<Sum>&) {}
    template <class Activations>
    IMBREX_KERNEL static void prepare(const warp&, Activations&) {}
    template <class Sum, class Activations>
    IMBREX_KERNEL static void amend(const warp&, no_amends<Sum>&, const Activations&) {}
    template <class Sum>
    IMBREX_KERNEL static void finish(const warp&, Sum&) {}
};

// Weights whose numbers can be summed as they are. `Weights` has dequantise_block<First>(self, tile, part), and
// dequantise_held<FirstRow, FirstColumn>(self, tile, held) for what a warp holds.
template <class Weights, class Part, class In, int Depth>
struct directly_multiplied : quantised_weights<Part, In, Depth>, multiplied_plainly {
    // By a warp, piece by piece (weight_stream.hpp): sums are not scaled.
    static constexpr int piece_groups = 0;
    template <class Sum, int Parts, class Held, class Activations>
    IMBREX_KERNEL static void multiply_piece(const warp& self, Sum (&sums)[Parts], const no_amends<Sum>&,
                                             const Held& weights, const Activations& a) {
        for_each_sixteen<0, packed_columns, Parts>([&](auto column, auto part) {
            warp_tile<In, 16, 16> numbers;
            Weights::template dequantise_held<16 * part, column>(self, numbers, weights);
            mma_abt(self, sums[part], numbers, columns_of<column, 16>(self, a));
        });
    }
    // For who wants the weights themselves (unpack_weights.hpp): put(first column, tile) of sixteen rows.
    template <int FirstRow, class Held, class Put>
    IMBREX_KERNEL static void widen_rows(const warp& self, const Held& weights, const Put& put) {
        warp_tile<In, 16, packed_columns> numbers;
        Weights::template dequantise_held<FirstRow, 0>(self, numbers, weights);
        put(std::integral_constant<int, 0>{}, numbers);
    }

    template <class Sum, class Activations>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Sum& sum, const Part& weights,
                                       const Activations& activations, accumulation how) {
        group_tile<In, packed_rows, packed_columns> blocks[Depth / packed_columns];
        for_each_constant<Depth / packed_columns>([&](auto number) {
            constexpr int first = number * packed_columns;
            Weights::template dequantise_block<first>(self, blocks[number], weights);
            mma_abt_async(self, sum, blocks[number], activations.template part<Sum::columns, packed_columns>(0, first),
                          number == 0 ? how : accumulation::add);
        });
        wait_mma(self, sum);
    }
};

// A piece of weights, 64 rows and 64 of K, and what a warp holds of it in registers.
template <class Format, class Scales>
struct scaled_piece {
    packed_tile<Format, packed_rows, packed_columns> values;
    Scales scales;
};
template <class Format>
struct bare_piece {
    packed_tile<Format, packed_rows, packed_columns> values;
};
template <class Format, class Scales>
struct held_piece {
    packed_values<Format, packed_columns> values;
    Scales scales;
};
template <class Format>
struct held_bare_piece {
    packed_values<Format, packed_columns> values;
};

template <class Format, int Depth>
struct bare_part {
    packed_tile<Format, packed_rows, Depth> values;
};
template <int Depth>
struct mxfp4_part {
    packed_tile<e2m1x2, packed_rows, Depth> values;
    packed_scales<packed_rows, Depth> scales;
};
template <class Format, int Group, class Scale, int Depth>
struct grouped_part {
    packed_tile<Format, packed_rows, Depth> values;
    packed_row_scales<Scale> scales[Depth / Group];
};

}  // namespace detail

// 8 bits each, and no scales among them: those of the rows are applied to D.
template <class In, class Format, int Depth>
struct bare_weights
    : detail::directly_multiplied<bare_weights<In, Format, Depth>, detail::bare_part<Format, Depth>, In, Depth> {
    static_assert(std::is_same_v<Format, std::int8_t> || std::is_same_v<Format, e4m3>,
                  "imbrex: weights of 8 bits can have a scale for each row alone; others are scaled by groups");
    using part = detail::bare_part<Format, Depth>;
    using format = Format;
    using scale = float;  // of a row: not the weights' business
    static constexpr int group = 0;

    template <int First, class Block>
    IMBREX_KERNEL static void dequantise_block(const warpgroup& self, Block& block, const part& weights) {
        dequantise<First>(self, block, weights.values);
    }

    using piece = detail::bare_piece<Format>;
    using held = detail::held_bare_piece<Format>;

    IMBREX_KERNEL static void copy_piece(const warp& self, piece& to, const part& from, int column) {
        copy_object_async(self, to.values, from.values.template columns_from<packed_columns>(column));
    }
    IMBREX_KERNEL static void take(const warp& self, held& to, const piece& from) {
        imbrex::load(self, to.values, from.values);
    }
    template <int FirstRow, int FirstColumn, class Tile>
    IMBREX_KERNEL static void dequantise_held(const warp& self, Tile& to, const held& weights) {
        dequantise_rows<FirstRow, FirstColumn>(self, to, weights.values);
    }
};

template <class In, int Depth = 256>
using int8_weights = bare_weights<In, std::int8_t, Depth>;
template <class In, int Depth = 256>
using e4m3_weights = bare_weights<In, e4m3, Depth>;

template <class In, int Depth = 256>
struct mxfp4_weights : detail::directly_multiplied<mxfp4_weights<In, Depth>, detail::mxfp4_part<Depth>, In, Depth> {
    using part = detail::mxfp4_part<Depth>;
    using format = e2m1x2;
    using scale = ue8m0;
    static constexpr int group = packed_scale_columns;

    template <int First, class Block>
    IMBREX_KERNEL static void dequantise_block(const warpgroup& self, Block& block, const part& weights) {
        dequantise<First>(self, block, weights.values, weights.scales);
    }

    using piece = detail::scaled_piece<e2m1x2, packed_scales<packed_rows, packed_columns>>;
    using held = detail::held_piece<e2m1x2, packed_scale_values<packed_columns>>;

    IMBREX_KERNEL static void copy_piece(const warp& self, piece& to, const part& from, int column) {
        copy_object_async(self, to.values, from.values.template columns_from<packed_columns>(column));
        copy_object_async(self, to.scales, from.scales.template columns_from<packed_columns>(column));
    }
    IMBREX_KERNEL static void take(const warp& self, held& to, const piece& from) {
        imbrex::load(self, to.values, from.values);
        imbrex::load(self, to.scales, from.scales);
    }
    template <int FirstRow, int FirstColumn, class Tile>
    IMBREX_KERNEL static void dequantise_held(const warp& self, Tile& to, const held& weights) {
        dequantise_rows<FirstRow, FirstColumn>(self, to, weights.values, weights.scales);
    }
};

template <class In, class Format, int Group, class Scale = In, int Depth = 256>
struct grouped_weights : detail::quantised_weights<detail::grouped_part<Format, Group, Scale, Depth>, In, Depth> {
    static_assert(std::is_same_v<Format, std::int8_t> || std::is_same_v<Format, int4x2>,
                  "imbrex: integers are scaled by groups; 4-bit floats have mxfp4_weights");
    static_assert(Group == 32 || Group == 64 || Group == 128, "imbrex: a group of weights is 32, 64 or 128 of K");
    static_assert(Depth % Group == 0, "imbrex: the depth of a step must be a multiple of the group's");
    using part = detail::grouped_part<Format, Group, Scale, Depth>;
    using format = Format;
    using scale = Scale;
    static constexpr int group = Group;
    static constexpr int groups = Depth / Group;

    template <class Sum, class Activations>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Sum& sum, const part& weights,
                                       const Activations& activations, accumulation how) {
        if (how == accumulation::replace) fill(self, sum, 0.0f);
        row_values<Scale, packed_rows, warpgroup> scales[groups];
        detail::for_each_constant<groups>(
            [&](auto number) { imbrex::load(self, scales[number], weights.scales[number]); });
        group_tile<In, packed_rows, Group> numbers[groups];
        Sum products[groups];
        const auto add_scaled = [&](auto number) {
            combine_with_rows(self, sum, products[number], scales[number], [](float total, float product, Scale times) {
                return hw::fma(product, convert<float>(times), total);
            });
        };
        detail::for_each_constant<groups>([&](auto number) {
            dequantise_group<number>(self, numbers, weights);
            const auto rows = activations.template part<Sum::columns, Group>(0, number * Group);
            mma_abt_async(self, products[number], numbers[number], rows, accumulation::replace);
            // A group's sum is waited for when the next one's products are under way.
            if constexpr (number > 0) {
                wait_mma<1>(self, products[number - 1]);
                add_scaled(std::integral_constant<int, number - 1>{});
            }
        });
        wait_mma(self, products[groups - 1]);
        add_scaled(std::integral_constant<int, groups - 1>{});
    }

    // A piece has a scale for each row, or two in groups of 32. Those of a larger group come with each of its pieces.
    static constexpr int piece_groups = Group < packed_columns ? packed_columns / Group : 1;
    static constexpr int piece_width = packed_columns / piece_groups;
    static constexpr int scale_registers = piece_groups * packed_rows / 8 * static_cast<int>(sizeof(Scale)) / 4;
    struct piece_scales {
        packed_row_scales<Scale> of[piece_groups];
    };
    struct held_scales {
        row_values<Scale, packed_rows, warp> of[piece_groups];
    };
    using piece = detail::scaled_piece<Format, piece_scales>;
    using held = detail::held_piece<Format, held_scales>;

    IMBREX_KERNEL static void copy_piece(const warp& self, piece& to, const part& from, int column) {
        copy_object_async(self, to.values, from.values.template columns_from<packed_columns>(column));
        for (int i = 0; i < piece_groups; ++i) {
            copy_object_async(self, to.scales.of[i], from.scales[column / Group + i]);
        }
    }
    IMBREX_KERNEL static void take(const warp& self, held& to, const piece& from) {
        imbrex::load(self, to.values, from.values);
        detail::for_each_constant<piece_groups>(
            [&](auto number) { imbrex::load(self, to.scales.of[number], from.scales.of[number]); });
    }

    // int4 are multiplied as grains, which are made with half the instructions. What lowers them is the sum of the activations,
    // which the tensor cores make too, and with which sums of products begin.
    static constexpr bool in_grains = std::is_same_v<Format, int4x2>;
    template <class Sum>
    struct amends {
        warp_tile<In, 16, 16> lowering;
        Sum of[piece_groups];
    };
    template <class Sum>
    IMBREX_KERNEL static void begin(const warp& self, amends<Sum>& amended) {
        if constexpr (in_grains) fill_lowering(self, amended.lowering);
    }
    template <class Activations>
    IMBREX_KERNEL static void prepare(const warp& self, Activations& a) {
        if constexpr (in_grains) enlarge(self, a);
    }
    template <class Sum, class Activations>
    IMBREX_KERNEL static void amend(const warp& self, amends<Sum>& amended, const Activations& a) {
        detail::for_each_constant<piece_groups>([&](auto number) {
            fill(self, amended.of[number], 0.0f);
            if constexpr (in_grains) {
                detail::for_each_constant<piece_width / 16>([&](auto sixteen) {
                    mma_abt(self, amended.of[number], amended.lowering,
                            columns_of<number * piece_width + 16 * sixteen, 16>(self, a));
                });
            }
        });
    }
    template <class Sum, int Parts, class Activations>
    IMBREX_KERNEL static void multiply_piece(const warp& self, Sum (&sums)[Parts], const amends<Sum>& amended,
                                             const held& weights, const Activations& a) {
        detail::for_each_constant<piece_groups>([&](auto number) {
            Sum products[Parts];
            for (Sum& one : products) one = amended.of[number];
            detail::for_each_sixteen<number * piece_width, piece_width, Parts>([&](auto column, auto part) {
                warp_tile<In, 16, 16> numbers;
                if constexpr (in_grains) {
                    grain_rows<16 * part, column>(self, numbers, weights.values);
                } else {
                    dequantise_rows<16 * part, column>(self, numbers, weights.values);
                }
                mma_abt(self, products[part], numbers, columns_of<column, 16>(self, a));
            });
            detail::for_each_constant<Parts>([&](auto part) {
                combine_with_rows(self, sums[part], products[part],
                                  rows_of<16 * part, 16>(self, weights.scales.of[number]),
                                  [](float total, float product, Scale times) {
                                      return hw::fma(product, convert<float>(times), total);
                                  });
            });
        });
    }
    template <class Sum>
    IMBREX_KERNEL static void finish(const warp& self, Sum& sum) {
        if constexpr (in_grains) {
            map_indexed(self, sum,
                        [](int row, int, float value) { return value * packed_grain_scale<In>(row % 16 / 8); });
        }
    }

    // Of a piece that has its scales with it: multiplied by them, and rounded.
    template <int FirstRow, class Put>
    IMBREX_KERNEL static void widen_rows(const warp& self, const held& weights, const Put& put) {
        warp_tile<In, 16, packed_columns> numbers;
        dequantise_rows<FirstRow>(self, numbers, weights.values);
        detail::for_each_constant<piece_groups>([&](auto number) {
            auto scaled = to<float>(self, columns_of<number * piece_width, piece_width>(self, numbers));
            combine_with_rows(self, scaled, rows_of<FirstRow, 16>(self, weights.scales.of[number]),
                              [](float value, Scale times) { return value * convert<float>(times); });
            put(std::integral_constant<int, number * piece_width>{}, to<In>(self, scaled));
        });
    }

  private:
    // Groups of 32 are dequantised by twos.
    template <int Number>
    IMBREX_KERNEL static void dequantise_group(const warpgroup& self,
                                               group_tile<In, packed_rows, Group> (&numbers)[groups],
                                               const part& weights) {
        constexpr int first = Number * Group;
        if constexpr (Group >= packed_columns) {
            dequantise<first>(self, numbers[Number], weights.values);
        } else if constexpr (first % packed_columns == 0) {
            group_tile<In, packed_rows, packed_columns> two;
            dequantise<first>(self, two, weights.values);
            numbers[Number] = columns_of<0, Group>(self, two);
            numbers[Number + 1] = columns_of<Group, Group>(self, two);
        }
    }
};

template <class In, int Group = 128, class Scale = In, int Depth = 256>
using int4_weights = grouped_weights<In, int4x2, Group, Scale, Depth>;

}  // namespace imbrex
