// The tile scheduler of the grouped GEMM over experts: a persistent block takes every grid-th tile, in rasterisation groups.
// The number of tiles and the expert of each row of tiles are read from the routing in device memory.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/read_element.hpp>

namespace imbrex {

inline namespace IMBREX_WORLDS {

// The tiles of a block. `row` and `column` count tiles.
class moe_tile_scheduler {
  public:
    template <class Block>
    IMBREX_KERNEL moe_tile_scheduler(const Block& block, const moe_routing& routing, int tile_columns, int group_m)
        : experts_(routing.expert_of_tile),
          order_{read_element(routing.tiles, 0), tile_columns, group_m},
          number_(block.index().x),
          step_(block.count().x) {
        settle();
    }
    IMBREX_KERNEL bool more() const { return number_ < order_.tiles(); }
    IMBREX_KERNEL void advance() {
        number_ += step_;
        settle();
    }

  private:
    IMBREX_KERNEL void settle() {
        if (!more()) return;
        const tile_coord at = order_.at(number_);
        row = at.row, column = at.column;
        expert = read_element(experts_, row);
    }
    const int* experts_;
    rasterisation_groups order_;
    int number_;
    int step_;

  public:
    int row = 0;
    int column = 0;
    int expert = 0;
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
