// The kernel of `linear`: SIMT / CPU GEMV. A block is one warp. It owns some rows of x and a range of weight rows:
//
//     stage      rows of x into shared memory, in steps of BlockK along k
//     multiply   staged rows with a few weight rows at a time; each weight is read from memory once
//     store      sums, scaled, with bias, rounded once
//
// Warps share nothing, so no warp waits for another.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/warp/simt_gemv.hpp>
#include <imbrex/tile/staged_rows.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

namespace detail {

// Epilogue of a sum: row scale and bias.
template <class Weights>
struct linear_epilogue {
    const Weights& weights;
    const float* bias;
    int first;

    IMBREX_FN float operator()(int column, float sum) const {
        if constexpr (std::is_same_v<Weights, e4m3_weight_rows>) sum *= weights.scales[first + column];
        return bias != nullptr ? sum + bias[first + column] : sum;
    }
};

}  // namespace detail

inline namespace IMBREX_WORLDS {

// Rows x Columns: rows of x by weight rows (columns of the result) at a time. BlockK: columns of x staged at once.
template <class In, class Weights, class Out, int Rows, int Columns, int BlockK>
struct linear_kernel {
    static constexpr int warps = 1;
    static constexpr int block_m = Rows;
    static constexpr int block_n = Columns;
    static constexpr bool uses_pdl = true;
    using shared_memory = staged_rows<Weights, Rows, BlockK>;

    struct arguments {
        row_accessor<const In> x;
        Weights weights;
        const float* bias;  // null: no bias
        row_accessor<Out> out;
        int rows, columns, k;  // m, n, k
        int columns_per_block;
        bool in_chunks;  // weight rows can be read 16 bytes at a time

        IMBREX_FN int tiles() const { return (rows - 1) / Rows + 1; }
    };

    static grid_dim grid_of(const arguments& args) {
        return {args.tiles() * ((args.columns - 1) / args.columns_per_block + 1)};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        // Consecutive blocks share the same weights.
        const int number = block.index().x;
        block.each_warp(
            multiply_rows{args, shared, number % args.tiles() * Rows, number / args.tiles() * args.columns_per_block});
    }

  private:
    struct multiply_rows {
        const arguments& args;
        shared_memory& shared;
        int row, first_column;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const int rows = lesser(Rows, args.rows - row);
            const int end = lesser(args.columns - first_column, args.columns_per_block) + first_column;
            for (int column = first_column; column < end; column += Columns) {
                const int columns = lesser(Columns, end - column);
                gemv_accumulator<Rows, Columns> sums;
                fill(self, sums, 0.0f);
                for (int first_k = 0; first_k < args.k; first_k += BlockK) {
                    // If all of k is staged at once, it stays staged.
                    if (args.k > BlockK || column == first_column) stage(self, rows, first_k);
                    accumulate_products(
                        self, sums, shared, rows,
                        weight_block_at(args.weights, column, first_k, columns, lesser(BlockK, args.k - first_k)),
                        args.in_chunks);
                }
                reduce_lanes(self, sums);
                store_accumulator(self, row_pointers<Out>{args.out, row, args.rows, column}, sums, rows, columns,
                                  detail::linear_epilogue<Weights>{args.weights, args.bias, column});
            }
        }

      private:
        IMBREX_KERNEL static int lesser(int a, int b) { return a < b ? a : b; }
        IMBREX_KERNEL void stage(const warp& self, int rows, int first_k) const {
            self.sync();
            stage_rows(self, shared, row_pointers<const In>{args.x, row, args.rows, first_k}, rows, args.k - first_k);
            self.sync();
        }
    };
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
