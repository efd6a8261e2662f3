// The kernels of a root mean square norm. A row is read once and kept in registers, 512 columns in a warp: a warp has several short
// rows, and several warps, a block of them, share a long one. Rows that are longer still, or lie such that 16 bytes cannot be read at a
// time, are read twice, piece after piece.
//
//   each warp    loads its columns of x, of the weights and, if there is one, of the residual
//                adds and rounds the residual, and stores it
//                sums squares
//   all meet     that share a row, and each adds the sums of all in the same order
//   each warp    scales and stores
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/position.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/elementwise/rows.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/register/chunks.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/chunk_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cmath>

namespace imbrex {

template <class T, class Weight>
struct rms_norm_arguments {
    row_places<const T> x;
    row_places<T> residual;  // not given: none
    row_places<T> out;
    row_places<const Weight> weight;  // one row
    int rows;
    int columns;
    float epsilon;

    IMBREX_KERNEL float inverse_of(float sum_of_squares) const {
        return 1.0f / std::sqrt(sum_of_squares / static_cast<float>(columns) + epsilon);
    }
};

namespace detail {

struct scale_and_weigh {
    IMBREX_FN float operator()(float x, float inverse, float weight) const { return x * inverse * weight; }
};

// Sums of the warps that share a row. Each adds them in the same order, and so gets the same.
template <int Sharers>
struct shared_sums {
    struct everybody {};
    shared_vector<float, Sharers> of_warps;

    IMBREX_KERNEL float total(const warp& self, float mine, source here = source::current()) {
        put(self, of_warps, self.index(), mine, here);
        named_barriers<everybody>::template of<everybody>().sync(self, Sharers, here);
        float sum = 0;
        for (int i = 0; i < Sharers; ++i) sum += get(self, of_warps, i, here);
        return sum;
    }
};

}  // namespace detail

// Rows of up to Columns * Sharers columns. With one sharer, a warp has as many rows as make 512 elements.
template <class T, class Weight, int Columns, int Sharers>
struct rms_norm_kernel {
    static_assert(Columns == 512 || (Columns < 512 && Sharers == 1), "imbrex: a warp has 512 elements");
    static constexpr int rows_at_once = 512 / Columns;
    static constexpr int warps = Sharers == 1 ? 4 : Sharers;
    // As many as can have 48 registers a thread, which 16-bit elements get by with: while some wait at the meeting of their warps,
    // others have memory to wait for.
    static constexpr int residents = Sharers == 1 || sizeof(T) + sizeof(Weight) > 4 || warps > 21 ? 1 : 42 / warps;
    static constexpr bool begins_early = true;
    using arguments = rms_norm_arguments<T, Weight>;
    using shared_memory = detail::shared_sums<Sharers>;

    static position grid_of(const arguments& args) {
        constexpr int in_block = rows_at_once * (warps / Sharers);
        return {(args.rows - 1) / in_block + 1};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        wait_for_kernel_before(block);
        allow_next_kernel(block);
        block.each_warp(normalise{args, shared, block.index().x * (warps / Sharers)});
    }

  private:
    using tile = chunk_tile<T, rows_at_once, Columns>;
    static constexpr row_chunks whole = row_chunks::whole;

    struct normalise {
        const arguments& args;
        shared_memory& shared;
        int first_of_block;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const int row = (first_of_block + (Sharers == 1 ? self.index() : 0)) * rows_at_once;
            if (row >= args.rows) return;
            const int column = Sharers == 1 ? 0 : self.index() * Columns;
            const int columns = args.columns - column;
            tile x;
            load_rows_from<whole>(self, x, places_of_tile<const T>{args.x, row, args.rows, column}, columns);
            chunk_column_values<Weight, Columns> weight;
            load<whole>(self, weight, args.weight.at(0, column), columns);
            if (args.residual.given()) {
                const places_of_tile<T> place{args.residual, row, args.rows, column};
                tile more;
                load_rows_from<whole>(self, more, place, columns);
                transform(self, x, add{}, x, more);
                store_rows_to<whole>(self, place, x, columns);
            }
            chunk_row_values<tile> inverse;
            fill(self, inverse, 0.0f);
            fold_rows(self, inverse, x, add_square{});
            finish_rows(self, inverse, add{});
            if constexpr (Sharers > 1) fill(self, inverse, shared.total(self, row_value(self, inverse)));
            map(self, inverse, [&](float sum) { return args.inverse_of(sum); });
            transform(self, x, detail::scale_and_weigh{}, x, inverse, weight);
            store_rows_to<whole>(self, places_of_tile<T>{args.out, row, args.rows, column}, x, columns);
        }
    };
};

// Any rows: a block to each.
template <class T, class Weight, row_chunks Known>
struct rms_norm_any_kernel {
    static constexpr int warps = 8;
    static constexpr bool begins_early = true;
    using arguments = rms_norm_arguments<T, Weight>;
    using shared_memory = detail::shared_sums<warps>;

    static position grid_of(const arguments& args) { return {args.rows}; }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        wait_for_kernel_before(block);
        allow_next_kernel(block);
        block.each_warp(normalise{args, shared, block.index().x});
    }

  private:
    static constexpr int columns_at_once = 256;
    using tile = chunk_tile<T, 1, columns_at_once>;

    struct normalise {
        const arguments& args;
        shared_memory& shared;
        int row;

        IMBREX_KERNEL void operator()(const warp& self) const {
            chunk_row_values<tile> inverse;
            fill(self, inverse, 0.0f);
            for (int column = first(self); column < args.columns; column += step) {
                tile x;
                load_from(self, x, args.x, column);
                if (args.residual.given()) {
                    tile more;
                    load_from(self, more, args.residual, column);
                    transform(self, x, add{}, x, more);
                    store_to(self, args.residual, x, column);
                }
                fold_rows(self, inverse, x, add_square{});
            }
            finish_rows(self, inverse, add{});
            fill(self, inverse, args.inverse_of(shared.total(self, row_value(self, inverse))));
            // A lane reads again what it has read, or written, itself.
            for (int column = first(self); column < args.columns; column += step) {
                tile x;
                if (args.residual.given()) {
                    load_from(self, x, args.residual, column);
                } else {
                    load_from(self, x, args.x, column);
                }
                chunk_column_values<Weight, columns_at_once> weight;
                load<Known>(self, weight, args.weight.at(0, column), args.columns - column);
                transform(self, x, detail::scale_and_weigh{}, x, inverse, weight);
                store_to(self, args.out, x, column);
            }
        }

      private:
        static constexpr int step = warps * columns_at_once;

        IMBREX_KERNEL static int first(const warp& self) { return self.index() * columns_at_once; }
        template <class Element>
        IMBREX_KERNEL void load_from(const warp& self, tile& to, const row_places<Element>& from, int column) const {
            load_rows_from<Known>(self, to, places_of_tile<Element>{from, row, args.rows, column},
                                  args.columns - column);
        }
        IMBREX_KERNEL void store_to(const warp& self, const row_places<T>& to, const tile& from, int column) const {
            store_rows_to<Known>(self, places_of_tile<T>{to, row, args.rows, column}, from, args.columns - column);
        }
    };
};

}  // namespace imbrex
