// What a block does of a GEMM whose tiles are shared by the blocks of a cluster: the cluster's tiles, one after the other, and of each of
// them the block's own steps of K.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <int Sharers>
struct gemm_shared_work {
    int rank;
    int first_tile;
    int tile_step;
    int first;  // of the block's steps
    int count;

    template <class Block>
    IMBREX_KERNEL gemm_shared_work(const Block& block, int steps)
        : rank(block.cluster_rank()),
          first_tile(block.index().x / Sharers),
          tile_step(block.count().x / Sharers),
          first(steps * rank / Sharers),
          count(steps * (rank + 1) / Sharers - first) {}
};

}  // namespace imbrex
