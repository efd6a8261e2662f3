// Tile schedulers for persistent kernels. A persistent kernel launches about one block per SM; each block processes
// output tiles until none is left. The tile scheduler assigns tiles to blocks and orders them:
//
//   static_tile_scheduler     block b processes tiles b, b + grid, b + 2 grid, ...: no memory, no waiting
//   dynamic_tile_scheduler    blocks take the next tile from a counter in global memory, which balances uneven tiles
//   rasterisation_groups      the order of the tiles: groups of group_m rows, so that concurrent tiles share L2 data
//
//     rasterisation_groups with group_m = 2, 4 x 3 tiles:     0  2  4
//                                                             1  3  5
//                                                             6  8 10
//                                                             7  9 11
//
// Work is divided by whole output tiles. stream-K, which divides the K loop of a GEMM across tile boundaries, is not
// implemented.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/memory_order.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

struct tile_coord {
    int row;
    int column;
};

// Converts tile numbers to rows and columns of tiles.
struct rasterisation_groups {
    int rows;
    int columns;
    int group_m;  // rows of tiles in a group

    constexpr IMBREX_FN int tiles() const { return rows * columns; }
    constexpr IMBREX_FN tile_coord at(int number) const {
        const int full = group_m * columns;
        const int group = number / full;
        const int first_row = group * group_m;
        const int height = rows - first_row < group_m ? rows - first_row : group_m;  // the last group may be smaller
        const int inside = number - group * full;
        return {first_row + inside % height, inside / height};
    }
};

// for (int tile : static_tile_scheduler(block, total)): every role of a block iterates over the same tiles.
class static_tile_scheduler {
  public:
    template <class Block>
    IMBREX_KERNEL static_tile_scheduler(const Block& block, int total)
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

// Tiles drawn from a counter in global memory. The counter must be zero before each launch; the last block to draw
// resets it, so launches may follow each other. Without a counter, blocks take tiles as static_tile_scheduler does. One
// warp of the block draws and publishes the tile number, or any other item, to the other roles through a small ring. A
// number at or past the total means that no tile is left.
//
// No other block can take a tile that waits in a ring, so at most `Ahead` tiles are drawn before the first of them is
// released. No reader may hold more than that.
template <int Stages = 2, class Item = int, int Ahead = Stages>
struct dynamic_tile_scheduler {
    static_assert(Ahead >= 1 && Ahead <= Stages,
                  "imbrex: a dynamic tile scheduler draws at least one tile ahead and at most its number of stages");
    shared_vector<Item, 1> items[Stages];
    transaction_barrier full[Stages];
    transaction_barrier empty[Stages];

    // `reader_warps`: the warps of all reading roles.
    template <class Scope>
    IMBREX_KERNEL void init(const Scope& scope, int reader_warps, source here = source::current()) {
        for (int i = 0; i < Stages; ++i) {
            full[i].init(scope, 1, here);
            empty[i].init(scope, reader_warps, here);
        }
    }

    class drawing_cursor {
      public:
        template <class Block>
        IMBREX_KERNEL drawing_cursor(dynamic_tile_scheduler& queue, const warp& scope, const Block& block, int total,
                                     int* counter)
            : queue_(&queue),
              scope_(&scope),
              counter_(counter),
              turn_(block.index().x),
              blocks_(block.count().x),
              total_(total) {}

        // The next tile. Must not be called again after it has returned a number at or past the total.
        IMBREX_KERNEL int draw(source here = source::current()) {
            if (counter_ == nullptr) {
                const int number = turn_;
                turn_ += blocks_;
                return number;
            }
            const int stage = at_.stage() + Stages - Ahead;
            queue_->empty[stage % Stages].wait(*scope_, at_.round() - (stage < Stages ? 1 : 0), here);
            const int number = hw::fetch_increment(*scope_, counter_, here);
            // Every block draws one number past the end: this is the last of them.
            if (number == total_ + blocks_ - 1)
                hw::atomic_store<memory_order::relaxed, memory_scope::device>(*scope_, counter_, 0, here);
            return number;
        }

        IMBREX_KERNEL void publish(const Item& item, source here = source::current()) {
            const int slot = at_.stage();
            queue_->empty[slot].wait(*scope_, at_.round() - 1, here);
            hw::put(*scope_, queue_->items[slot], 0, item, here);
            queue_->full[slot].arrive(*scope_, here);
            at_.advance();
        }

        // Draws the next tile, publishes its number and returns it.
        IMBREX_KERNEL int next(source here = source::current()) {
            const int number = draw(here);
            publish(number, here);
            return number;
        }

      private:
        dynamic_tile_scheduler* queue_;
        const warp* scope_;
        int* counter_;
        int turn_;
        int blocks_;
        int total_;
        pipeline_state<Stages> at_;
    };

    // An item in the ring. It is released when the handle ends or is assigned another item.
    template <class Scope>
    class held_item {
      public:
        IMBREX_KERNEL held_item(dynamic_tile_scheduler& queue, const Scope& scope, int slot, source from)
            : queue_(&queue), scope_(&scope), slot_(slot), from_(from) {}
        IMBREX_KERNEL held_item(held_item&& other, source here = source::current())
            : queue_(other.queue_), scope_(other.scope_), slot_(other.slot_), from_(other.from_) {
            other.slot_ = none;
            other.from_ = here;
        }
        IMBREX_KERNEL held_item& operator=(held_item&& other) {
            release(from_);
            slot_ = other.slot_;
            from_ = other.from_;
            other.slot_ = none;
            return *this;
        }
        held_item(const held_item&) = delete;
        held_item& operator=(const held_item&) = delete;
        // Throws in the host world if the release is a hazard.
        IMBREX_KERNEL ~held_item() noexcept(false) { release(from_); }

        IMBREX_KERNEL Item get(source here = source::current()) const { return hw::get(*scope_, held(), 0, here); }
        // One member of the item, which costs fewer registers.
        template <class Of, class Member>
        IMBREX_KERNEL Member get(Member Of::*member, source here = source::current()) const {
            return hw::get(*scope_, held(), 0, member, here);
        }
        IMBREX_KERNEL void release(source here = source::current()) {
            if (slot_ != none) queue_->empty[slot_].arrive(*scope_, here);
            slot_ = none;
            from_ = here;
        }

      private:
        static constexpr int none = -1;
        // As for a stage of a pipeline, the use of an item after its release is a hazard.
        IMBREX_KERNEL const shared_vector<Item, 1>& held() const {
            if constexpr (!device_world) {
                if (slot_ == none) return hw::released_stage<shared_vector<Item, 1>>(from_);
            }
            return queue_->items[slot_];
        }

        dynamic_tile_scheduler* queue_;
        const Scope* scope_;
        int slot_;
        [[no_unique_address]] source from_;
    };

    template <class Scope>
    class reading_cursor {
      public:
        IMBREX_KERNEL reading_cursor(dynamic_tile_scheduler& queue, const Scope& scope)
            : queue_(&queue), scope_(&scope) {}

        // The next item that the drawing warp has published.
        IMBREX_KERNEL Item next(source here = source::current()) {
            const int slot = at_.stage();
            queue_->full[slot].wait(*scope_, at_.round(), here);
            const Item item = hw::get(*scope_, queue_->items[slot], 0, here);
            queue_->empty[slot].arrive(*scope_, here);
            at_.advance();
            return item;
        }

        // The same, but the item stays in the ring until it is released: for a late second use without registers.
        IMBREX_KERNEL held_item<Scope> hold(source here = source::current()) {
            const int slot = at_.stage();
            queue_->full[slot].wait(*scope_, at_.round(), here);
            at_.advance();
            return {*queue_, *scope_, slot, here};
        }

      private:
        dynamic_tile_scheduler* queue_;
        const Scope* scope_;
        pipeline_state<Stages> at_;
    };

    // For a one-dimensional grid; `counter` may be null.
    template <class Block>
    IMBREX_KERNEL drawing_cursor draw(const warp& scope, const Block& block, int total, int* counter) {
        return {*this, scope, block, total, counter};
    }

    template <class Scope>
    IMBREX_KERNEL reading_cursor<Scope> read(const Scope& scope) {
        return {*this, scope};
    }
};

}  // namespace imbrex
