// Clusters: loads from the shared memory of another block (DSMEM), arrivals at its barriers, the cluster's syncs and
// the exits of blocks.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using group_values = warpgroup_tile<float, 64, 32>;

// Block `rank` of a cluster of two has the same layout as the other: `full` says that the other block's tile is
// written, `empty` that the other block has read this one's.
struct exchange {
    tile mine;
    transaction_barrier full, empty;
};

template <class Block>
IMBREX_KERNEL void begin(Block& block, exchange& shared, int warps = 4) {
    shared.full.init(block, warps);
    shared.empty.init(block, warps);
    fence_barriers(block);
    block.cluster_sync();
}

// A tile of the input to shared memory, and the other block's tile to the output.
IMBREX_KERNEL void write(const warpgroup& self, tile& to, const corpus_arguments& args, int number) {
    group_values values;
    load(self, values, args.in.at(64 * number, 0));
    store(self, to, values);
}
IMBREX_KERNEL void read(const warpgroup& self, const corpus_arguments& args, int number, const tile& from, int rank) {
    group_values values;
    dsmem_load(self, values, from, rank);
    store(self, args.out.at(64 * number, 0), values);
}

// A block sync follows the initialisation of barriers at which another block arrives.
template <bool Fixed>
struct block_sync_after_init : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.full.init(block, 4);
        fence_barriers(block);
        if constexpr (Fixed) {
            block.cluster_sync();
        } else {
            block.sync();
        }
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.mine, args, rank);
            fence_cluster(self);
            shared.full.arrive_at(self, 1 - rank);
            shared.full.wait(self, 0);
            fence_cluster(self);
            read(self, args, rank, shared.mine, 1 - rank);
        });
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, block_sync_after_init, 2, barrier_not_initialised)

// A block sync stands between the writes and the other block's reads.
template <bool Fixed>
struct block_sync_before_the_remote_read : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        block.each_warpgroup([&](warpgroup& self) { write(self, shared.mine, args, rank); });
        if constexpr (Fixed) {
            block.cluster_sync();
        } else {
            block.sync();
        }
        block.each_warpgroup([&](warpgroup& self) { read(self, args, rank, shared.mine, 1 - rank); });
        block.cluster_sync();
    }
};
HAZARD(clusters, block_sync_before_the_remote_read, 2, race, uninitialised_read)

// The next round overwrites the tile that the other block may still read.
template <bool Fixed>
struct overwritten_before_the_remote_read : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        for (int i = 0; i < 3; ++i) {
            block.each_warpgroup([&](warpgroup& self) { write(self, shared.mine, args, 2 * i + rank); });
            block.cluster_sync();
            block.each_warpgroup([&](warpgroup& self) { read(self, args, 2 * i + rank, shared.mine, 1 - rank); });
            if (Fixed || i == 2) block.cluster_sync();
        }
    }
};
HAZARD(clusters, overwritten_before_the_remote_read, 2, race)

// The block arrives at its own barrier instead of the other block's, and reads what may not be written.
template <bool Fixed>
struct arrives_at_its_own_barrier : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.mine, args, rank);
            fence_cluster(self);
            shared.full.arrive_at(self, Fixed ? 1 - rank : rank);
            shared.full.wait(self, 0);
            fence_cluster(self);
            read(self, args, rank, shared.mine, 1 - rank);
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, arrives_at_its_own_barrier, 2, race, uninitialised_read)

// No cluster fence between the writes and the arrival: an arrival alone orders accesses within one block.
template <bool Fixed>
struct no_cluster_fence_after_the_writes : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.mine, args, rank);
            if constexpr (Fixed) fence_cluster(self);
            shared.full.arrive_at(self, 1 - rank);
            shared.full.wait(self, 0);
            fence_cluster(self);
            read(self, args, rank, shared.mine, 1 - rank);
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, no_cluster_fence_after_the_writes, 2, race)

// No cluster fence between the wait and the reads.
template <bool Fixed>
struct no_cluster_fence_before_the_reads : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.mine, args, rank);
            fence_cluster(self);
            shared.full.arrive_at(self, 1 - rank);
            shared.full.wait(self, 0);
            if constexpr (Fixed) fence_cluster(self);
            read(self, args, rank, shared.mine, 1 - rank);
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, no_cluster_fence_before_the_reads, 2, race)

// The rank of the next block is not taken modulo the size of the cluster.
template <bool Fixed>
struct reads_a_rank_past_the_cluster : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        block.each_warpgroup([&](warpgroup& self) { write(self, shared.mine, args, rank); });
        block.cluster_sync();
        const int next = Fixed ? (rank + 1) % 2 : rank + 1;
        block.each_warpgroup([&](warpgroup& self) { read(self, args, rank, shared.mine, next); });
        block.cluster_sync();
    }
};
HAZARD(clusters, reads_a_rank_past_the_cluster, 2, beyond_limits)

// One block does one round less and exits; the other still meets it and reads its memory.
template <bool Fixed>
struct block_leaves_one_round_early : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        const int rounds = Fixed ? 2 : 2 - rank;
        for (int i = 0; i < rounds; ++i) {
            block.each_warpgroup([&](warpgroup& self) { write(self, shared.mine, args, 2 * i + rank); });
            block.cluster_sync();
            block.each_warpgroup([&](warpgroup& self) { read(self, args, 2 * i + rank, shared.mine, 1 - rank); });
            block.cluster_sync();
        }
    }
};
HAZARD(clusters, block_leaves_one_round_early, 2, incomplete_collective, in_flight_at_exit, deadlock)

// The barrier counts the warps of one block, and both blocks arrive at it.
template <bool Fixed>
struct warps_of_one_block_counted : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared, Fixed ? 8 : 4);
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.mine, args, rank);
            fence_cluster(self);
            for (int to = 0; to < 2; ++to) shared.full.arrive_at(self, to);
            shared.full.wait(self, 0);
            fence_cluster(self);
            read(self, args, rank, shared.mine, 1 - rank);
        });
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, warps_of_one_block_counted, 2, arrived_too_often, race, uninitialised_read, wrong_phase)

// The reader releases the other block's tile before it reads the tile.
template <bool Fixed>
struct remote_release_before_the_read : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        block.each_warpgroup([&](warpgroup& self) {
            for (unsigned i = 0; i < 3; ++i) {
                shared.empty.wait(self, i - 1);
                write(self, shared.mine, args, 2 * i + rank);
                fence_cluster(self);
                shared.full.arrive_at(self, 1 - rank);
                shared.full.wait(self, i);
                fence_cluster(self);
                if constexpr (!Fixed) shared.empty.arrive_at(self, 1 - rank);
                read(self, args, 2 * i + rank, shared.mine, 1 - rank);
                if constexpr (Fixed) shared.empty.arrive_at(self, 1 - rank);
            }
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, remote_release_before_the_read, 2, race)

// Both blocks exit without a cluster sync; the other may still read.
template <bool Fixed>
struct exit_while_the_other_block_reads : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        block.each_warpgroup([&](warpgroup& self) { write(self, shared.mine, args, rank); });
        block.cluster_sync();
        block.each_warpgroup([&](warpgroup& self) { read(self, args, rank, shared.mine, 1 - rank); });
        if constexpr (Fixed) block.cluster_sync();
    }
};
HAZARD(clusters, exit_while_the_other_block_reads, 2, in_flight_at_exit)

// The writer waits for the reader's releases before it writes again, but not for the last one before it exits.
template <bool Fixed>
struct exit_before_the_last_release : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        block.each_warpgroup([&](warpgroup& self) {
            for (unsigned i = 0; i < 2; ++i) {
                if (rank == 0) {
                    shared.empty.wait(self, i - 1);
                    write(self, shared.mine, args, i);
                    fence_cluster(self);
                    shared.full.arrive_at(self, 1);
                } else {
                    shared.full.wait(self, i);
                    fence_cluster(self);
                    read(self, args, i, shared.mine, 0);
                    shared.empty.arrive_at(self, 0);
                }
            }
            if (Fixed && rank == 0) shared.empty.wait(self, 1);
        });
    }
};
HAZARD(clusters, exit_before_the_last_release, 2, in_flight_at_exit)

}  // namespace
