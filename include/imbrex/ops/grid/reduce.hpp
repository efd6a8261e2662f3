// A reduction over the whole grid in one launch. Each block contributes a value; the last block to arrive reduces them
// in the order of the blocks, so the result is deterministic. No block waits.
#pragma once

#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

// Memory that the caller provides: one value per block, and a counter that is zero before the first launch. It is zero
// again after each launch, so a CUDA graph can be replayed.
template <class T>
struct grid_scratch {
    T* values;
    int* counter;
};

template <int Warps, int Cluster, class T, class Op>
IMBREX_KERNEL void reduce_grid(const block_scope<Warps, Cluster>& block, T value, Op op, T identity,
                               grid_scratch<T> scratch, T* result, shared_vector<int, 1>& flag,
                               source here = source::current()) {
    const grid_dim at = block.index();
    const grid_dim grid = block.count();
    hw::put_global(block, scratch.values + (at.z * grid.y + at.y) * grid.x + at.x, value, here);
    if (!hw::is_last_block(block, scratch.counter, flag, here)) return;
    T all = identity;
    for (int i = 0; i < grid.x * grid.y * grid.z; ++i) all = op(all, scratch.values[i]);
    hw::put_global(block, result, all, here);
}

}  // namespace imbrex
