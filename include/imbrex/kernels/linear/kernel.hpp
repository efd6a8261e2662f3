// The kernel of a product by rows of weights. A block is one warp. It has some rows of x and a range of rows of weights, which it
// goes through some at a time:
//
//     stage      rows of x in shared memory, in pieces along k where they are too long to be there whole
//     multiply   each with some rows of weights, which are read from memory once
//     store      sums, scaled and with the bias, rounded once
//
// Nothing is shared between warps, so none waits for another.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/position.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/kernels/elementwise/rows.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/warp/row_products.hpp>
#include <imbrex/tile/staged_rows.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

namespace detail {

// What a sum becomes before it is stored.
template <class Weights>
struct linear_result {
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

// Rows of x and rows of weights (columns of the result) at a time, and how much of k is staged at once.
template <class In, class Weights, class Out, int Rows, int Columns, int Depth>
struct linear_kernel {
    static constexpr int warps = 1;
    static constexpr int rows_at_once = Rows;
    static constexpr int columns_at_once = Columns;
    static constexpr bool begins_early = true;
    using shared_memory = staged_rows<Weights, Rows, Depth>;

    struct arguments {
        row_places<const In> x;
        Weights weights;
        const float* bias;  // none if null
        row_places<Out> out;
        int rows, columns, depth;  // m, n, k
        int columns_of_block;
        bool in_chunks;  // whether rows of weights can be read 16 bytes at a time

        IMBREX_FN int tiles() const { return (rows - 1) / Rows + 1; }
    };

    static position grid_of(const arguments& args) {
        return {args.tiles() * ((args.columns - 1) / args.columns_of_block + 1)};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        wait_for_kernel_before(block);
        allow_next_kernel(block);
        // Blocks that follow each other have the same weights.
        const int number = block.index().x;
        block.each_warp(
            multiply{args, shared, number % args.tiles() * Rows, number / args.tiles() * args.columns_of_block});
    }

  private:
    struct multiply {
        const arguments& args;
        shared_memory& shared;
        int row, first_column;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const int rows = lesser(Rows, args.rows - row);
            const int end = lesser(args.columns - first_column, args.columns_of_block) + first_column;
            for (int column = first_column; column < end; column += Columns) {
                const int columns = lesser(Columns, end - column);
                product_sums<Rows, Columns> sums;
                fill(self, sums, 0.0f);
                for (int depth = 0; depth < args.depth; depth += Depth) {
                    // One piece that is all there is stays.
                    if (args.depth > Depth || column == first_column) stage(self, rows, depth);
                    add_products(self, sums, shared, rows,
                                 weights_from(args.weights, column, depth, columns, lesser(Depth, args.depth - depth)),
                                 args.in_chunks);
                }
                finish(self, sums);
                store_products(self, places_of_tile<Out>{args.out, row, args.rows, column}, sums, rows, columns,
                               detail::linear_result<Weights>{args.weights, args.bias, column});
            }
        }

      private:
        IMBREX_KERNEL static int lesser(int a, int b) { return a < b ? a : b; }
        IMBREX_KERNEL void stage(const warp& self, int rows, int depth) const {
            self.sync();
            stage_rows(self, shared, places_of_tile<const In>{args.x, row, args.rows, depth}, rows, args.depth - depth);
            self.sync();
        }
    };
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
