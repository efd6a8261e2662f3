// The mainloop of the fused dequantisation GEMMs (dequantising.hpp, moe_gemm/dequantising.hpp): the stage of their ring,
// and how a consumer warpgroup multiplies it. Each of two warpgroups has 64 rows of packed weights, columns of D, and all
// `Rows` rows of A. A K step has two blocks of 64. The weights of a block are dequantised in registers while the tensor
// cores multiply the block before:
//
//     dequantise 0 | dequantise 1 | dequantise 2 | ...
//                  |    mma 0     |    mma 1     |    mma 2   ...
//
// With a GLU epilogue the first warpgroup has columns of the gate and the second the same columns of the up matrix.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/packed_weights.hpp>
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

template <dequantises_blocks Weights, bool IsGlu, int Rows>
struct dequantising_tile {
    using element = typename Weights::element;
    static constexpr int consumer_warpgroups = 2;
    static constexpr int warpgroup_n = packed_rows;
    static constexpr int block_n = IsGlu ? warpgroup_n : consumer_warpgroups * warpgroup_n;  // columns of D
    static constexpr int step_k = 128;
    static constexpr int piece_k = Weights::block_k % step_k == 0 ? step_k : packed_columns;  // K of a copy of weights
    static constexpr int pieces = step_k / piece_k;

    using activations = shared_tile<element, Rows, step_k>;
    using weight_columns = typename Weights::template weight_columns<piece_k>;
    using sums = warpgroup_tile<float, warpgroup_n, Rows>;
    using numbers = warpgroup_tile<element, warpgroup_n, packed_columns>;

    static constexpr int weight_bytes = consumer_warpgroups * pieces * static_cast<int>(sizeof(weight_columns));
    struct stage {
        static constexpr int bytes = weight_bytes + activations::bytes;
        weight_columns weights[consumer_warpgroups][pieces];
        activations a;
    };

    static constexpr IMBREX_FN int columns_of_n(int n) { return ceil_div(n, block_n); }
    static constexpr IMBREX_FN int steps_of(int k) { return ceil_div(k, step_k); }

    // Loads the weights of a step. `row` is the first of the tile, and with a GLU `up` that of the up matrix. Pieces
    // beyond K repeat others, since the activations there are zero.
    template <class Slot>
    IMBREX_KERNEL static void load_weights(const warp& self, const Slot& slot, const typename Weights::argument& from,
                                           int row, int up, int step) {
        for (int group = 0; group < consumer_warpgroups; ++group) {
            const int block = (group == 0 ? row : IsGlu ? up : row + warpgroup_n) / packed_rows;
            for (int piece = 0; piece < pieces; ++piece) {
                const int k = step * step_k + piece * piece_k, number = k / Weights::block_k;
                Weights::template load_columns<piece_k>(self, slot->weights[group][piece],
                                                        from.at(block, number < from.steps ? number : from.steps - 1),
                                                        k % Weights::block_k, slot);
            }
        }
    }

    // The sum of `count` steps.
    template <class Cursor>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Cursor& full, sums& sum, int count) {
        fill(self, sum, 0.0f);
        numbers first, second;
        auto held = full.no_stage();
        for (int i = 0; i < count; ++i) {
            auto now = full.wait();
            multiply_block<0>(self, sum, first, *now);
            wait_mma<1>(self);
            held = std::move(now);  // releases the stage before
            multiply_block<packed_columns>(self, sum, second, *held);
            wait_mma<1>(self);
        }
        wait_mma(self, sum);
    }

  private:
    template <int FirstK>
    IMBREX_KERNEL static void multiply_block(const warpgroup& self, sums& sum, numbers& block, const stage& from) {
        Weights::template dequantise_block<FirstK % piece_k>(self, block, from.weights[self.index()][FirstK / piece_k]);
        mma_abt_async(self, sum, block, from.a.template subtile<Rows, packed_columns>(0, FirstK));
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
