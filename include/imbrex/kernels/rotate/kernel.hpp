// The kernel that rotates heads of tokens. A warp has some heads of one token, and of each the columns of two tiles: it finds the
// rotations of these once, and turns all its heads by them. No warp meets another.
//
//     half split      | a |   | b |   |         the columns of a pair are in the same place of the two
//     otherwise       | a | b |       |         next to each other; and behind the rotated ones, columns that are copied
//
//   each warp    asks for its tiles
//                finds its rotations meanwhile
//                turns and stores
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/known_divisor.hpp>
#include <imbrex/core/position.hpp>
#include <imbrex/kernels/elementwise/rows.hpp>
#include <imbrex/kernels/rotary/embedding.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/register/chunk_rotate.hpp>
#include <imbrex/ops/register/chunks.hpp>
#include <imbrex/tile/chunk_tile.hpp>

#include <cstdint>

namespace imbrex {

// How the columns of a head are divided into two tiles at a time: those that are rotated, then those that are copied.
template <int Columns>
struct rotated_columns {
    int rotated, end;
    bool halves;

    struct part {
        bool turned;
        int first[2];  // column of each tile
        int end[2];    // and where the columns end that it has some of
    };

    IMBREX_FN static int parts_of(int count) { return (count + 2 * Columns - 1) / (2 * Columns); }
    IMBREX_FN int turned() const { return halves ? (rotated / 2 + Columns - 1) / Columns : parts_of(rotated); }
    IMBREX_FN int count() const { return turned() + parts_of(end - rotated); }
    IMBREX_FN part at(int number) const {
        const int half = rotated / 2, behind = number - turned();
        if (behind >= 0) return side_by_side(false, rotated + 2 * Columns * behind, end);
        if (!halves) return side_by_side(true, 2 * Columns * number, rotated);
        return {true, {Columns * number, half + Columns * number}, {half, rotated}};
    }

  private:
    IMBREX_FN static part side_by_side(bool turned, int first, int end) {
        return {turned, {first, first + Columns}, {end, end}};
    }
};

// Tiles of so many columns, and of as many heads as make two chunks of each in a lane: so 40 warps, or 32 of floats, fit into a
// multiprocessor, and together they ask for 80 KiB and more at a time.
template <class T, int Columns, row_chunks Known>
struct rotate_rows_kernel {
    static constexpr int warps = 4;
    static constexpr int residents = sizeof(T) == 2 ? 10 : 8;
    static constexpr bool begins_early = true;
    static constexpr int heads_at_once = (Known == row_chunks::whole ? 512 : 256) / Columns;
    using columns = rotated_columns<Columns>;

    struct arguments {
        row_view<const T> x;
        row_view<T> out;
        const int* positions;  // null: counted
        int first_position;
        rotary_embedding rotary;
        columns all;
        known_divisor parts_of_head, parts_of_token;

        IMBREX_FN std::int64_t count() const { return x.extents[0] * parts_of_token.value; }
    };

    static position grid_of(const arguments& args) { return {static_cast<int>((args.count() - 1) / warps + 1)}; }

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        wait_for_kernel_before(block);
        allow_next_kernel(block);
        block.each_warp(rotate_part{args, block.index().x * warps});
    }

  private:
    using tile = chunk_tile<T, heads_at_once, Columns>;
    using part = typename columns::part;

    // A column of some heads of a token: `place(row)` as load_rows_from and store_rows_to want it.
    template <class Element>
    struct column_of_heads {
        global_tile<Element> heads;
        int column;

        IMBREX_FN Element* operator()(int head) const { return head < heads.rows ? heads.at(head, column) : nullptr; }
    };

    struct rotate_part {
        const arguments& args;
        int first_of_block;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const int number = first_of_block + self.index();
            if (number >= args.count()) return;
            const int token = args.parts_of_token.quotient(number);
            const int inside = number - token * args.parts_of_token.value;
            const int some = args.parts_of_head.quotient(inside), head = some * heads_at_once;
            const part one = args.all.at(inside - some * args.parts_of_head.value);
            const int position = args.positions != nullptr ? args.positions[token] : args.first_position + token;

            const global_tile<const T> from = args.x.at(token, head, 0);
            const int present[2] = {one.end[0] - one.first[0], one.end[1] - one.first[1]};
            tile a, b;
            load_rows_from<Known>(self, a, column_of_heads<const T>{from, one.first[0]}, present[0]);
            load_rows_from<Known>(self, b, column_of_heads<const T>{from, one.first[1]}, present[1]);
            if (one.turned) turn(self, a, b, one, position);
            const global_tile<T> to = args.out.at(token, head, 0);
            store_rows_to<Known>(self, column_of_heads<T>{to, one.first[0]}, a, present[0]);
            store_rows_to<Known>(self, column_of_heads<T>{to, one.first[1]}, b, present[1]);
        }

      private:
        IMBREX_KERNEL void turn(const warp& self, tile& a, tile& b, const part& one, int position) const {
            chunk_rotations<Columns> by;
            if (args.all.halves) {
                find_rotations(self, by, [&](int column) { return at(one.first[0] + column, position); });
                rotate(self, a, b, by);
            } else {
                turn_neighbours(self, a, by, one.first[0], position);
                turn_neighbours(self, b, by, one.first[1], position);
            }
        }
        IMBREX_KERNEL void turn_neighbours(const warp& self, tile& neighbours, chunk_rotations<Columns>& by, int first,
                                           int position) const {
            find_rotations_of_neighbours(self, by, [&](int column) { return at((first + column) / 2, position); });
            rotate_neighbours(self, neighbours, by);
        }
        // Behind the last pair, where nothing is turned, that of the last one.
        IMBREX_KERNEL rotation at(int pair, int position) const {
            const int last = args.rotary.columns / 2 - 1;
            return args.rotary.at(pair < last ? pair : last, position);
        }
    };
};

}  // namespace imbrex
