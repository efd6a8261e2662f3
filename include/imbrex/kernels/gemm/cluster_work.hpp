// What a block does of a GEMM whose tiles are shared by the blocks of a cluster: the cluster's tiles, one after the other, and of each of
// them the block's own steps of K.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <int ClusterSize>
struct gemm_cluster_work {
    int rank;
    int first_tile;
    int tile_step;
    int first;  // of the block's steps
    int count;

    template <class Block>
    IMBREX_KERNEL gemm_cluster_work(const Block& block, int steps)
        : rank(block.cluster_rank()),
          first_tile(block.index().x / ClusterSize),
          tile_step(block.count().x / ClusterSize),
          first(steps * rank / ClusterSize),
          count(steps * (rank + 1) / ClusterSize - first) {}
};

}  // namespace imbrex
