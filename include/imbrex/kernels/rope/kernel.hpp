// The kernel of apply_rope. A warp has some heads of one token and two column tiles of each. It computes cos and sin of
// the columns once and applies them to all its heads. Warps do not synchronise.
//
//     half_split      | a |   | b |   |         the columns of a pair are at the same place in a and b
//     otherwise       | a | b |       |         adjacent tiles; columns past rotary_dim are copied
//
//   each warp    issues the loads of its tiles
//                computes cos and sin meanwhile
//                rotates and stores
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/kernels/rope/embedding.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_rope.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex {

// Division of a head's columns into pairs of tiles: rotated columns first, then copied ones.
template <int Columns>
struct rope_columns {
    int rotary_dim, end;
    bool halves;

    struct tile_pair {
        bool rotated;
        int first[2];  // first column of each tile
        int end[2];    // end of the column range that the tile belongs to
    };

    IMBREX_FN static int pairs_in(int count) { return (count + 2 * Columns - 1) / (2 * Columns); }
    IMBREX_FN int rotated_pairs() const {
        return halves ? (rotary_dim / 2 + Columns - 1) / Columns : pairs_in(rotary_dim);
    }
    IMBREX_FN int count() const { return rotated_pairs() + pairs_in(end - rotary_dim); }
    IMBREX_FN tile_pair at(int number) const {
        const int half = rotary_dim / 2, behind = number - rotated_pairs();
        if (behind >= 0) return side_by_side(false, rotary_dim + 2 * Columns * behind, end);
        if (!halves) return side_by_side(true, 2 * Columns * number, rotary_dim);
        return {true, {Columns * number, half + Columns * number}, {half, rotary_dim}};
    }

  private:
    IMBREX_FN static tile_pair side_by_side(bool rotated, int first, int end) {
        return {rotated, {first, first + Columns}, {end, end}};
    }
};

// The number of heads gives each lane two vectors per tile: 40 warps fit an SM (32 with floats), with at least 80 KiB
// of loads in flight together.
template <class T, int Columns, row_alignment Known>
struct apply_rope_kernel {
    static constexpr int warps = 4;
    static constexpr int min_blocks_per_sm = sizeof(T) == 2 ? 10 : 8;
    static constexpr bool uses_pdl = true;
    static constexpr int heads_at_once = (Known == row_alignment::aligned ? 512 : 256) / Columns;
    using columns = rope_columns<Columns>;

    struct arguments {
        row_view<const T> x;
        row_view<T> out;
        const int* positions;  // null: numbered from first_position
        int first_position;
        rope_embedding rope;
        columns all;
        fast_divmod pairs_per_head, pairs_per_token;

        IMBREX_FN std::int64_t count() const { return x.extents[0] * pairs_per_token.value; }
    };

    static grid_dim grid_of(const arguments& args) { return {static_cast<int>((args.count() - 1) / warps + 1)}; }

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.each_warp(rotate_tile_pair{args, block.index().x * warps});
    }

  private:
    using tile = vector_row_tile<T, heads_at_once, Columns>;
    using tile_pair = typename columns::tile_pair;

    // One column of some heads of a token: the row pointers that load_rows_from and store_rows_to take.
    template <class Element>
    struct column_of_heads {
        global_tile<Element> heads;
        int column;

        IMBREX_FN Element* operator()(int head) const { return head < heads.rows ? heads.at(head, column) : nullptr; }
    };

    struct rotate_tile_pair {
        const arguments& args;
        int first_of_block;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const int number = first_of_block + self.index();
            if (number >= args.count()) return;
            const int token = args.pairs_per_token.quotient(number);
            const int inside = number - token * args.pairs_per_token.value;
            const int some = args.pairs_per_head.quotient(inside), head = some * heads_at_once;
            const tile_pair one = args.all.at(inside - some * args.pairs_per_head.value);
            const int position =
                args.positions != nullptr ? read_element(args.positions, token) : args.first_position + token;

            const global_tile<const T> from = args.x.at(token, head, 0);
            const int present[2] = {one.end[0] - one.first[0], one.end[1] - one.first[1]};
            tile a, b;
            load_rows_from<Known>(self, a, column_of_heads<const T>{from, one.first[0]}, present[0]);
            load_rows_from<Known>(self, b, column_of_heads<const T>{from, one.first[1]}, present[1]);
            if (one.rotated) apply(self, a, b, one, position);
            const global_tile<T> to = args.out.at(token, head, 0);
            store_rows_to<Known>(self, column_of_heads<T>{to, one.first[0]}, a, present[0]);
            store_rows_to<Known>(self, column_of_heads<T>{to, one.first[1]}, b, present[1]);
        }

      private:
        IMBREX_KERNEL void apply(const warp& self, tile& a, tile& b, const tile_pair& one, int position) const {
            vector_row_cos_sin<Columns> by;
            if (args.all.halves) {
                compute_cos_sin(self, by, [&](int column) { return at(one.first[0] + column, position); });
                apply_rope_half_split(self, a, b, by);
            } else {
                apply_interleaved(self, a, by, one.first[0], position);
                apply_interleaved(self, b, by, one.first[1], position);
            }
        }
        IMBREX_KERNEL void apply_interleaved(const warp& self, tile& neighbours, vector_row_cos_sin<Columns>& by,
                                             int first, int position) const {
            compute_cos_sin_interleaved(self, by, [&](int column) { return at((first + column) / 2, position); });
            apply_rope_interleaved(self, neighbours, by);
        }
        // Columns past the last pair, which are not rotated, read the last pair.
        IMBREX_KERNEL cos_sin at(int pair, int position) const {
            const int last = args.rope.rotary_dim / 2 - 1;
            return args.rope.at(pair < last ? pair : last, position);
        }
    };
};

}  // namespace imbrex
