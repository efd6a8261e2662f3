// A operands of warp-level mma.sync kept in registers in their storage type. 8-bit elements (e4m3, int8) are
// upconverted to fp16, exactly, 16 columns or rows at a time, when multiplied. Until then they take half the registers,
// and the shared memory they came from can be released early. 16-bit elements are kept as they are multiplied.
//
//   register_operand_rows       Rows x Columns by rows: 16 columns at a time are the A operand of mma_abt
//   register_operand_columns    Rows x Columns by columns: 16 rows at a time are the A operand of mma_atbt
//
// On the device 8-bit columns are permuted within every 16 (hw/cuda/register_operand.hpp). `permute_pairs_for` permutes
// the other operand alike along the reduction dimension. If the columns are rows of a result, `transpose_unpermuted`
// restores their order.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/transpose.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// The type in which stored elements are multiplied.
template <class Stored>
using mma_type_of = std::conditional_t<sizeof(Stored) == 1, fp16, Stored>;

template <class Stored, int Rows, int Columns, register_layout Layout>
class register_operand {
    static constexpr bool is_8bit = sizeof(Stored) == 1, by_rows = Layout == register_layout::row_major;
    static constexpr int parts = (by_rows ? Columns : Rows) / 16;
    static constexpr int part_rows = by_rows ? Rows : 16, part_columns = by_rows ? 16 : Columns;

  public:
    using operand = warp_tile<mma_type_of<Stored>, part_rows, part_columns, Layout>;

    template <class Shared>
    IMBREX_KERNEL void load(const warp& scope, const Shared& from, source here = source::current()) {
        if constexpr (is_8bit) {
            hw::load_8bit(scope, held_, from, here);
        } else {
            [&]<int... Numbers>(std::integer_sequence<int, Numbers...>) {
                (hw::load_operand<mma_operand::a>(scope, held_.of[Numbers],
                                                  from.template subtile<part_rows, part_columns>(
                                                      by_rows ? 0 : 16 * Numbers, by_rows ? 16 * Numbers : 0),
                                                  here),
                 ...);
            }
            (std::make_integer_sequence<int, parts>{});
        }
    }
    // Columns, or rows, from 16 * number on. `number` must be a compile-time constant after unrolling.
    IMBREX_KERNEL operand part(const warp& scope, int number, source here = source::current()) const {
        if constexpr (is_8bit) {
            operand made;
            if constexpr (by_rows) {
                hw::upconvert_columns(scope, made, held_, number, here);
            } else {
                hw::upconvert_rows(scope, made, held_, number, here);
            }
            return made;
        } else {
            return held_.of[number];
        }
    }

  private:
    struct as_multiplied {
        operand of[parts];
    };
    std::conditional_t<is_8bit, hw::fragment_8bit<Stored, Rows, Columns, Layout>, as_multiplied> held_;
};
template <class Stored, int Rows, int Columns>
using register_operand_rows = register_operand<Stored, Rows, Columns, register_layout::row_major>;
template <class Stored, int Rows, int Columns>
using register_operand_columns = register_operand<Stored, Rows, Columns, register_layout::column_major>;

// Permutes sixteen columns of the other operand of register_operand_rows<Stored>, for shared memory.
template <class Stored, class T, int Rows>
IMBREX_KERNEL warp_tile<T, Rows, 16> permute_pairs_for(const warp& scope, const warp_tile<T, Rows, 16>& from,
                                                       source here = source::current()) {
    warp_tile<T, Rows, 16> result = from;
    if constexpr (sizeof(Stored) == 1) hw::permute_pairs(scope, result, here);
    return result;
}

// Transposes a product with register_operand_columns<Stored> as A, and unpermutes it.
template <class Stored, int Rows, int Columns>
IMBREX_KERNEL warp_tile<float, 16, Rows> transpose_unpermuted(const warp& scope,
                                                              const warp_tile<float, Rows, Columns>& from,
                                                              source here = source::current()) {
    warp_tile<float, 16, Rows> result = transpose(scope, from, here);
    if constexpr (sizeof(Stored) == 1) hw::unpermute_columns(scope, result, here);
    return result;
}

// Multiplies each block of 16 rows by factor(index).
template <int Rows, int Columns, class Factor>
IMBREX_KERNEL void scale_16_rows(const warp& scope, warp_tile<float, Rows, Columns>& tile, const Factor& factor,
                                 source here = source::current()) {
    hw::scale_16_rows(scope, tile, factor, here);
}

}  // namespace imbrex
