// Who works on which tile of a problem that has more tiles than the machine has blocks. A persistent grid has about as
// many blocks as multiprocessors, and each takes tiles until none is left.
//
//   static_tiles    every block takes each grid-th tile: no memory, no waiting
//   turning_tiles   the same, each round in the opposite order of the one before: where tiles come longest first, those that got
//                   the longer ones of a round get the shorter ones of the next
//   tile_queue      blocks draw the next tile from a counter: the quick ones take more
//   supergroups     in which order: tiles are walked in bands of rows, so that those at work together share operands in
//   L2
//
//     supergroups of 2 rows, 4 x 3 tiles:     0  2  4
//                                             1  3  5
//                                             6  8 10
//                                             7  9 11
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/position.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scalar.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

struct tile_place {
    int row;
    int column;
};

// Tile numbers to rows and columns of tiles.
struct supergroups {
    int rows;
    int columns;
    int band;  // rows of tiles in a supergroup

    constexpr IMBREX_FN int tiles() const { return rows * columns; }
    constexpr IMBREX_FN tile_place at(int number) const {
        const int full = band * columns;
        const int group = number / full;
        const int first_row = group * band;
        const int height = rows - first_row < band ? rows - first_row : band;  // the last band may be lower
        const int inside = number - group * full;
        return {first_row + inside % height, inside / height};
    }
};

// for (int tile : static_tiles(block, total)): each role of a block walks the same numbers.
class static_tiles {
  public:
    template <class Block>
    IMBREX_KERNEL static_tiles(const Block& block, int total)
        : first_(block.index().x + block.count().x * (block.index().y + block.count().y * block.index().z)),
          step_(block.count().x * block.count().y * block.count().z),
          total_(total) {}

    struct iterator {
        int tile;
        int step;
        int total;
        IMBREX_KERNEL int operator*() const { return tile; }
        IMBREX_KERNEL iterator& operator++() {
            tile += step;
            return *this;
        }
        IMBREX_KERNEL bool operator!=(const iterator&) const { return tile < total; }
    };
    IMBREX_KERNEL iterator begin() const { return {first_, step_, total_}; }
    IMBREX_KERNEL iterator end() const { return {total_, step_, total_}; }

  private:
    int first_;
    int step_;
    int total_;
};

// for (int tile : turning_tiles(block, total)), of a grid along x. With 3 blocks: block 0 takes 0 5 6, block 1 1 4 7, block 2
// 2 3 8.
class turning_tiles {
  public:
    template <class Block>
    IMBREX_KERNEL turning_tiles(const Block& block, int total)
        : index_(block.index().x), blocks_(block.count().x), total_(total) {}

    struct iterator {
        int tile;
        int to_next;        // the way to this block's tile in the next round,
        int to_one_behind;  // and from there to the one behind that
        int total;
        IMBREX_KERNEL int operator*() const { return tile; }
        IMBREX_KERNEL iterator& operator++() {
            tile += to_next;
            const int step = to_next;
            to_next = to_one_behind;
            to_one_behind = step;
            return *this;
        }
        IMBREX_KERNEL bool operator!=(const iterator&) const { return tile < total; }
    };
    IMBREX_KERNEL iterator begin() const { return {index_, 2 * (blocks_ - index_) - 1, 2 * index_ + 1, total_}; }
    IMBREX_KERNEL iterator end() const { return {total_, 0, 0, total_}; }

  private:
    int index_;
    int blocks_;
    int total_;
};

// Tiles drawn from a counter in global memory, which must be zero before each launch. One warp of the block draws and
// tells the other roles through a small ring. A number at or past the total means that no tile is left.
template <int Depth = 2>
struct tile_queue {
    shared_vector<int, 1> numbers[Depth];
    transaction_barrier full[Depth];
    transaction_barrier empty[Depth];

    // `reader_warps`: those of all roles that read.
    template <class Scope>
    IMBREX_KERNEL void init(const Scope& scope, int reader_warps, source here = source::current()) {
        for (int i = 0; i < Depth; ++i) {
            full[i].init(scope, 1, here);
            empty[i].init(scope, reader_warps, here);
        }
    }

    class drawing_cursor {
      public:
        IMBREX_KERNEL drawing_cursor(tile_queue& queue, const warp& scope, int* counter)
            : queue_(&queue), scope_(&scope), counter_(counter) {}

        // Draws the next tile, passes it on and returns it.
        IMBREX_KERNEL int next(source here = source::current()) {
            const int slot = at_.stage;
            queue_->empty[slot].wait(*scope_, at_.round - 1, here);
            const int number = hw::take_number(*scope_, counter_, here);
            hw::put(*scope_, queue_->numbers[slot], 0, number, here);
            queue_->full[slot].arrive(*scope_, here);
            at_.advance();
            return number;
        }

      private:
        tile_queue* queue_;
        const warp* scope_;
        int* counter_;
        ring_position<Depth> at_;
    };

    template <class Scope>
    class reading_cursor {
      public:
        IMBREX_KERNEL reading_cursor(tile_queue& queue, const Scope& scope) : queue_(&queue), scope_(&scope) {}

        // The next tile that the drawing warp has passed on.
        IMBREX_KERNEL int next(source here = source::current()) {
            const int slot = at_.stage;
            queue_->full[slot].wait(*scope_, at_.round, here);
            const int number = hw::get(*scope_, queue_->numbers[slot], 0, here);
            queue_->empty[slot].arrive(*scope_, here);
            at_.advance();
            return number;
        }

      private:
        tile_queue* queue_;
        const Scope* scope_;
        ring_position<Depth> at_;
    };

    IMBREX_KERNEL drawing_cursor draw(const warp& scope, int* counter) { return {*this, scope, counter}; }

    template <class Scope>
    IMBREX_KERNEL reading_cursor<Scope> read(const Scope& scope) {
        return {*this, scope};
    }
};

}  // namespace imbrex
