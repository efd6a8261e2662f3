// Unquantised 16-bit weights for the GEMV (gemv.hpp), read from a row-major matrix [n, k] without packing. A subtile of
// up to 64 rows x 64 of K is copied to shared memory by cp.async and loaded into registers as an mma.sync operand.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

// A subtile has 64, 32 or 16 rows. A warp takes BlockK of K at a time: one subtile or two.
template <class In, int Rows = 64, int BlockK = 64>
struct unquantised_weights {
    using element = In;
    static constexpr int subtile_rows = Rows;
    static constexpr int block_k = BlockK;
    static constexpr int subtile_groups = 0;

    // The coordinate of a tile of Rows x BlockK.
    struct weight_tile {
        const gemm_view<const In>& all;
        int row, column;
    };
    struct argument {
        gemm_view<const In> all;

        IMBREX_KERNEL weight_tile at(int block, int step) const {
            return weight_tile{all, block * Rows, step * BlockK};
        }
    };
    static argument describe(const gemm_operand<const In>& from, int rows, int k) {
        return argument{detail::view_of(from, rows, k, 1)};
    }

    struct weight_subtile {
        shared_tile<In, Rows, packed_columns> values;
    };
    struct weight_fragment {
        warp_tile<In, 16, packed_columns> rows[Rows / 16];
    };

    using source = weight_tile;

    IMBREX_KERNEL static source source_of(const warp&, const weight_tile& first, int column) {
        return weight_tile{first.all, first.row, first.column + column};
    }
    template <class At>
    IMBREX_KERNEL static void copy_subtile(const warp& self, weight_subtile& to, const source& from, int parts, At) {
        copy_aligned_async(self, to.values.template subtile<Rows, packed_columns>(0),
                           from.all.at(0, from.row, from.column + parts * BlockK + At::columns));
    }
    template <class At>
    IMBREX_KERNEL static void load_fragment(const warp& self, weight_fragment& to, const weight_subtile& from, At) {
        static_for<Rows / 16>([&](auto number) {
            load_operand<mma_operand::a>(self, to.rows[number],
                                         from.values.template subtile<16, packed_columns>(16 * number));
        });
    }

    template <int FirstRow, class Sum, class Activations, class At>
    IMBREX_KERNEL static void multiply_rows(const warp& self, Sum& sum, Sum&, const weight_fragment& weights,
                                            const Activations& a, At) {
        mma_abt(self, sum, weights.rows[FirstRow / 16], a);
    }
    template <class Sum>
    IMBREX_KERNEL static void finish(const warp&, Sum&) {}
};

}  // namespace imbrex
