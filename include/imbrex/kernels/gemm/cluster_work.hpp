// The work of one block in a cluster split-K GEMM: the output tiles of its cluster, one after the other, and its own
// range of K steps in each of them.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <int ClusterSize>
struct gemm_cluster_work {
    int rank;
    int first_tile;
    int tile_step;
    int first;  // K step of this block
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
