// Reductions over a block: all elements of a shared tile to one value.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

// Every thread gets op over all elements of the tile. The warps exchange partial results through `scratch` and sync
// twice, so the tile and the scratch may be overwritten afterwards.
template <int Warps, int Cluster, class T, int Rows, int Columns, class Op>
IMBREX_KERNEL T reduce(const block_scope<Warps, Cluster>& block, const shared_tile<T, Rows, Columns>& tile, Op op,
                       T identity, shared_vector<T, Warps>& scratch, source here = source::current()) {
    return hw::reduce_shared(block, tile, op, identity, scratch, here);
}

}  // namespace imbrex
