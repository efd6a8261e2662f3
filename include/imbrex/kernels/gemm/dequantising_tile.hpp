// The mainloop of the fused dequantisation GEMMs (dequantising.hpp, moe_gemm/dequantising.hpp): the stage of their ring,
// and how a consumer warpgroup multiplies it. Each of two warpgroups has `Blocks` blocks of 64 rows of packed weights,
// columns of D, and all `Rows` rows of A. A step is two products of 64 x Rows x 64: two blocks of K, or with Blocks = 2
// two blocks of weights, which halves the loads of A. The weights of a product are dequantised in registers while the
// tensor cores work on the product before:
//
//     dequantise 0 | dequantise 1 | dequantise 2 | ...
//                  |    mma 0     |    mma 1     |    mma 2   ...
//
// With a GLU epilogue half of the blocks are columns of the gate and the others the same columns of the up matrix: with
// one block, those of the first and of the second warpgroup, with two, the first and the second of each warpgroup.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <utility>

namespace imbrex {

// Weight formats that can be dequantised by blocks of 64 of K.
template <class Weights>
concept dequantises_blocks = requires {
    typename Weights::template weight_columns<packed_columns>;
};

inline namespace IMBREX_WORLDS {

template <dequantises_blocks Weights, bool IsGlu, int Rows, int Blocks = 1>
struct dequantising_tile {
    using element = typename Weights::element;
    static_assert(Blocks == 1 || Blocks == 2, "imbrex: a warpgroup has one or two blocks of 64 rows of weights");
    static constexpr int consumer_warpgroups = 2;
    static constexpr int weight_blocks = consumer_warpgroups * Blocks;
    static constexpr int block_n = packed_rows * weight_blocks / (IsGlu ? 2 : 1);  // columns of D
    static constexpr int step_k = 2 * packed_columns / Blocks;
    // K of a copy of weights.
    static constexpr int piece_k = Weights::block_k % step_k == 0 ? step_k : packed_columns;
    static constexpr int pieces = step_k / piece_k;

    using activations = shared_tile<element, Rows, step_k>;
    using weight_columns = typename Weights::template weight_columns<piece_k>;
    using numbers = warpgroup_tile<element, packed_rows, packed_columns>;
    struct sums {
        warpgroup_tile<float, packed_rows, Rows> of[Blocks];
    };

    static constexpr int weight_bytes = weight_blocks * pieces * static_cast<int>(sizeof(weight_columns));
    struct stage {
        static constexpr int bytes = weight_bytes + activations::bytes;
        weight_columns weights[weight_blocks][pieces];
        activations a;
    };

    static constexpr IMBREX_FN int columns_of_n(int n) { return ceil_div(n, block_n); }
    static constexpr IMBREX_FN int steps_of(int k) { return ceil_div(k, step_k); }

    // Loads the weights of a step. `row` is the first of the tile, and with a GLU `up` that of the up matrix. Pieces
    // beyond K repeat others, since the activations there are zero.
    template <class Slot>
    IMBREX_KERNEL static void load_weights(const warp& self, const Slot& slot, const typename Weights::argument& from,
                                           int row, int up, int step) {
        for (int which = 0; which < weight_blocks; ++which) {
            const int first = IsGlu ? (which % 2 == 0 ? row : up) + which / 2 * packed_rows : row + which * packed_rows;
            for (int piece = 0; piece < pieces; ++piece) {
                const int k = step * step_k + piece * piece_k, number = k / Weights::block_k;
                Weights::template load_columns<piece_k>(
                    self, slot->weights[which][piece],
                    from.at(first / packed_rows, number < from.steps ? number : from.steps - 1), k % Weights::block_k,
                    slot);
            }
        }
    }

    // The sums of `count` steps.
    template <class Cursor>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Cursor& full, sums& sum, int count) {
        static_for<Blocks>([&](auto block) { fill(self, sum.of[block], 0.0f); });
        numbers first, second;
        auto held = full.no_stage();
        for (int i = 0; i < count; ++i) {
            auto now = full.wait();
            multiply_part<0>(self, sum, first, *now);
            wait_mma<1>(self);
            held = std::move(now);  // releases the stage before
            multiply_part<1>(self, sum, second, *held);
            wait_mma<1>(self);
        }
        wait_mma(self, sum.of[0], sum.of[Blocks - 1]);
    }

  private:
    template <int Part>
    IMBREX_KERNEL static void multiply_part(const warpgroup& self, sums& sum, numbers& block, const stage& from) {
        constexpr int which = Blocks == 1 ? 0 : Part, k = Blocks == 1 ? Part * packed_columns : 0;
        Weights::template dequantise_block<k % piece_k>(self, block,
                                                        from.weights[self.index() * Blocks + which][k / piece_k]);
        mma_abt_async(self, sum.of[which], block, from.a.template subtile<Rows, packed_columns>(0, k));
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
