// Correct kernels with unusual TMA copies, named barriers and clusters.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using group_values = warpgroup_tile<float, 64, 32>;

struct one_copy {
    tile values;
    transaction_barrier landing;
};
struct four_tiles {
    tile values[4];
};

template <class Block>
IMBREX_KERNEL void begin(Block& block, one_copy& shared) {
    shared.landing.init(block, 1);
    fence_barriers(block);
    block.sync();
}

// A tile of the input to shared memory, and a shared tile to the output.
IMBREX_KERNEL void write(const warpgroup& self, tile& to, const corpus_arguments& args, int number) {
    group_values values;
    load(self, values, args.in.at(64 * number, 0));
    store(self, to, values);
}
IMBREX_KERNEL void read(const warpgroup& self, const corpus_arguments& args, int number, const tile& from) {
    group_values values;
    load(self, values, from);
    store(self, args.out.at(64 * number, 0), values);
}
IMBREX_KERNEL void read_from(const warpgroup& self, const corpus_arguments& args, int number, const tile& from,
                             int rank) {
    group_values values;
    dsmem_load(self, values, from, rank);
    store(self, args.out.at(64 * number, 0), values);
}

// The bytes are expected after the copy was issued: the phase cannot end before the arrival.
struct expected_after_the_load : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 2; ++i) {
                load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                shared.landing.expect(self, tile::bytes);
                shared.landing.wait(self, i);
                store(self, args.out.at(64 * i, 0), shared.values);
            }
        });
    }
};
CORRECT(tma, expected_after_the_load, 1)

// A tile wholly out of bounds, marked as such: it counts its bytes and loads zeros. The next one is half in bounds.
struct tiles_over_the_edge : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(tile_rows, 0).out_of_bounds_fill(), shared.landing);
            shared.landing.wait(self, 0);
            store(self, args.out.at(0, 0), shared.values);
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.at(rows - 32, 0), shared.landing);
            shared.landing.wait(self, 1);
            store_async(self, args.out_tensor.at(rows - 32, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
CORRECT(tma, tiles_over_the_edge, 1)

// TMA loads, stores twice and loads again: one proxy, so no fence, and two reads may overlap.
struct copied_by_tma_alone : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 3; ++i) {
                wait_stores_read(self);
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                shared.landing.wait(self, i);
                store_async(self, args.out_tensor.tile(i, 0), shared.values);
                commit_stores(self);
                reduce_add_async(self, args.out_tensor.tile(i, 1), shared.values);
                commit_stores(self);
            }
            wait_stores_read(self);
        });
    }
};
CORRECT(tma, copied_by_tma_alone, 1)

// Four blocks add to one rectangle: each addition is atomic, and these sums are exact in any order.
struct blocks_add_to_one_tile : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int number = block.index().x;
        block.each_warp([&](warp& self) {
            load(self, shared.values, args.in.at(64 * number, 0));
            fence_async(self);
            reduce_add_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
CORRECT(tma, blocks_add_to_one_tile, 4)

// Eight warps load one row each onto one barrier, which counts one warp and the bytes of all.
struct rows_by_eight_warps : hazard_kernel<8> {
    using row = shared_vector<float, columns>;
    struct shared_memory {
        row values[8];
        transaction_barrier landing;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            const int mine = self.index(), next = (mine + 1) % 8;
            load_object_async(self, shared.values[mine], *reinterpret_cast<const row*>(args.in.at(mine, 0).pointer),
                              shared.landing);
            if (mine == 7) shared.landing.expect(self, 8 * row::bytes);
            shared.landing.wait(self, 0);
            store(self, args.out.at(mine, 0).pointer, columns, shared.values[next]);
        });
    }
};
CORRECT(tma, rows_by_eight_warps, 1)

struct full {};
struct empty {};
struct turn {
    static constexpr int count = 3;
};
using names = named_barriers<full, empty, turn>;

// A ring of one tile with two named barriers instead of transaction barriers, refilled by TMA.
struct ring_of_named_barriers : hazard_kernel<8> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.roles(producer([&](warp& self) {
                        for (int i = 0; i < 4; ++i) {
                            if (i > 0) names::of<empty>().sync(self, 5);
                            shared.landing.expect(self, tile::bytes);
                            load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                            shared.landing.wait(self, i);
                            names::of<full>().arrive(self, 5);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (int i = 0; i < 4; ++i) {
                            names::of<full>().sync(self, 5);  // the copy is ordered through the producer's wait
                            read(self, args, i, shared.values);
                            if (i < 3) names::of<empty>().arrive(self, 5);
                        }
                    }));
    }
};
CORRECT(named_barriers, ring_of_named_barriers, 1)

// Group 0 writes, group 1 only passes the turn on, group 2 reads: order is transitive, and turns go round.
struct turns_round_three_groups : hazard_kernel<12> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            const int index = self.index();
            for (int i = 0; i < 3; ++i) {
                if (index > 0 || i > 0) names::of<turn>(index).sync(self, 8);
                if (index == 0) write(self, shared.values[0], args, i);
                if (index == 2) read(self, args, i, shared.values[0]);
                if (index < 2 || i < 2) names::of<turn>((index + 1) % 3).arrive(self, 8);
            }
        });
    }
};
CORRECT(named_barriers, turns_round_three_groups, 1)

// One barrier for all meetings of two groups, of which each learns at the sync that the last one is complete.
struct one_barrier_many_meetings : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 3; ++i) {
                write(self, shared.values[self.index()], args, 2 * i + self.index());
                names::of<full>().sync(self, 8);
                read(self, args, 2 * i + self.index(), shared.values[1 - self.index()]);
                names::of<full>().sync(self, 8);
            }
        });
    }
};
CORRECT(named_barriers, one_barrier_many_meetings, 1)

// One name for three teams of different size, one after the other: block syncs separate the uses.
struct one_barrier_for_three_teams : hazard_kernel<12> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int team = 0; team < 3; ++team) {
            block.each_warpgroup([&](warpgroup& self) {
                const int members = team == 2 ? 3 : 2;
                const int place = (self.index() + 3 - team) % 3;
                if (place >= members) return;
                write(self, shared.values[place], args, place);
                names::of<full>().sync(self, 4 * members);
                read(self, args, 2 * team + place, shared.values[(place + 1) % members]);
            });
            block.sync();
        }
    }
};
CORRECT(named_barriers, one_barrier_for_three_teams, 1)

// Two groups take turns by conditional hand-overs in every other iteration; each arrival is met by one sync.
struct conditional_turns : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            const int index = self.index();
            if (index == 0) {
                write(self, shared.values[0], args, 0);
                names::of<turn>(1).arrive(self, 8);
            }
            for (int i = 0; i < 4; ++i) {
                const bool wanted = i % 2 != index;
                names::of<turn>(index).sync_and_arrive_if(self, names::of<turn>(1 - index), 8, wanted && i < 3);
                if (wanted && i == 3) names::of<turn>(index).sync(self, 8);
                if (index == 1 && i == 0) read(self, args, 0, shared.values[0]);
            }
        });
    }
};
CORRECT(named_barriers, conditional_turns, 1)

struct exchange {
    tile mine;
    transaction_barrier full, empty;
};

template <class Block>
IMBREX_KERNEL void begin(Block& block, exchange& shared, int warps) {
    shared.full.init(block, warps);
    shared.empty.init(block, warps);
    fence_barriers(block);
    block.cluster_sync();
}

// Four blocks pass tiles round: each waits only for the block before it and is released by the block after it.
struct tiles_passed_round_a_cluster : hazard_kernel<4, 4> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank(), next = (rank + 1) % 4, last = (rank + 3) % 4;
        begin(block, shared, 4);
        block.each_warpgroup([&](warpgroup& self) {
            for (unsigned i = 0; i < 2; ++i) {
                shared.empty.wait(self, i - 1);
                write(self, shared.mine, args, 4 * i + rank);
                fence_cluster(self);
                shared.full.arrive_at(self, next);
                shared.full.wait(self, i);
                fence_cluster(self);
                read_from(self, args, 4 * i + rank, shared.mine, last);
                shared.empty.arrive_at(self, last);
            }
        });
        block.cluster_sync();
    }
};
CORRECT(clusters, tiles_passed_round_a_cluster, 4)

// No cluster sync at the end: block 0 waits for the release of its tile, and nobody uses the memory of block 1.
struct exit_after_the_last_release : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared, 4);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) {
                write(self, shared.mine, args, 0);
                fence_cluster(self);
                shared.full.arrive_at(self, 1);
                shared.empty.wait(self, 0);
            } else {
                shared.full.wait(self, 0);
                fence_cluster(self);
                read_from(self, args, 0, shared.mine, 0);
                shared.empty.arrive_at(self, 0);
            }
        });
    }
};
CORRECT(clusters, exit_after_the_last_release, 2)

// Block 1 reads the tile of block 0, which has learnt from block 2 that the tile may be overwritten: transitive order.
struct release_through_a_third_block : hazard_kernel<4, 4> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared, 4);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) {
                write(self, shared.mine, args, 0);
                fence_cluster(self);
                shared.full.arrive_at(self, 1);
                shared.empty.wait(self, 0);
                write(self, shared.mine, args, 1);
                self.sync();
                read(self, args, 1, shared.mine);
            } else if (rank == 1) {
                shared.full.wait(self, 0);
                fence_cluster(self);
                read_from(self, args, 0, shared.mine, 0);
                shared.full.arrive_at(self, 2);
            } else if (rank == 2) {
                shared.full.wait(self, 0);
                shared.empty.arrive_at(self, 0);
            }
        });
        block.cluster_sync();
    }
};
CORRECT(clusters, release_through_a_third_block, 4)

// A barrier counts uneven arrivals: four warps of its own block and one warp of each block of the cluster.
struct uneven_remote_arrivals : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared, 6);
        load(block, shared.mine, args.in.at(64 * rank, 0));
        block.sync();
        block.each_warp([&](warp& self) {
            fence_cluster(self);
            if (self.index() == 3) {
                shared.full.arrive_at(self, 0);
                shared.full.arrive_at(self, 1);
            }
            shared.full.arrive(self);
            shared.full.wait(self, 0);
            fence_cluster(self);
            warp_tile<float, 16, 32> values;
            dsmem_load(self, values, shared.mine.subtile<16>(16 * self.index()), 1 - rank);
            store(self, args.out.at(64 * rank + 16 * self.index(), 0), values);
        });
        block.cluster_sync();
    }
};
CORRECT(clusters, uneven_remote_arrivals, 2)

// Multicast needs sm_90a.
template <int Warps>
struct multicast_kernel : hazard_kernel<Warps, 2> {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
};

struct on_barrier {
    transaction_barrier* landing;
    IMBREX_KERNEL transaction_barrier& barrier() const { return *landing; }
};

// One block multicasts to both in several rounds; cluster syncs instead of releases let it refill.
struct multicast_between_cluster_syncs : multicast_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.landing.init(block, 1);
        fence_barriers(block);
        for (int i = 0; i < 3; ++i) {
            block.cluster_sync();
            block.each_warp([&](warp& self) {
                if (self.index() == 0) shared.landing.expect(self, tile::bytes);
                if (self.index() == 0 && rank == i % 2) {
                    load_multicast(self, shared.values, args.in_tensor.tile(i, 0), on_barrier{&shared.landing}, 3);
                }
                shared.landing.wait(self, i);
                warp_tile<float, 16, 32> values;
                load(self, values, shared.values.subtile<16>(16 * self.index()));
                store(self, args.out.at(64 * (2 * i + rank) + 16 * self.index(), 0), values);
            });
        }
        block.cluster_sync();
    }
};
CORRECT(clusters, multicast_between_cluster_syncs, 2)

// Multicast with a mask of one block: block 0 loads for block 1 only, which alone expects the bytes.
struct multicast_to_the_other_block_only : multicast_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.cluster_sync();
        block.each_warp([&](warp& self) {
            if (rank == 0) {
                if (self.index() != 0) return;
                load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing}, 2);
                return;
            }
            if (self.index() == 0) shared.landing.expect(self, tile::bytes);
            shared.landing.wait(self, 0);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
        block.cluster_sync();
    }
};
CORRECT(clusters, multicast_to_the_other_block_only, 2)

using buffer = dsmem_buffer<float, 64, 32>;

struct tile_or_buffer {
    overlay<tile, buffer> memory;
    transaction_barrier landing, ready;
};

// The memory of a DSMEM buffer is also a tile: ordinary writes, a fence, the release, and a store from the other block.
struct buffer_over_a_tile : hazard_kernel<4, 2> {
    using shared_memory = tile_or_buffer;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.landing.init(block, 4);
        shared.ready.init(block, 4);
        fence_barriers(block);
        block.cluster_sync();
        block.each_warpgroup([&](warpgroup& self) {
            group_values values;
            for (unsigned i = 0; i < 2; ++i) {
                write(self, shared.memory.as<tile>(), args, 2 * i + rank);
                read(self, args, 4 * i + 2 * rank, shared.memory.as<tile>());
                fence_async(self);
                self.sync();
                shared.ready.arrive_at(self, 1 - rank);
                load(self, values, args.in.at(64 * (2 * i + rank), 0));
                shared.ready.wait(self, i);
                dsmem_store_async(self, shared.memory.as<buffer>(), values, shared.landing, 1 - rank);
                shared.landing.expect(self, buffer::bytes);
                shared.landing.wait(self, i);
                fence_cluster(self);
                load_dsmem_buffer(self, values, shared.memory.as<buffer>());
                store(self, args.out.at(64 * (4 * i + 2 * rank + 1), 0), values);
                self.sync();
            }
        });
        block.cluster_sync();
    }
};
CORRECT(clusters, buffer_over_a_tile, 2)

// Blocks with nothing to do leave at once: no other block of their cluster uses their memory or waits for them.
struct idle_cluster_leaves : hazard_kernel<4, 2> {
    using shared_memory = exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        if (block.index().x / 2 == 1) return;
        const int rank = block.cluster_rank(), number = block.index().x;
        block.each_warpgroup([&](warpgroup& self) { write(self, shared.mine, args, number); });
        block.cluster_sync();
        block.each_warpgroup([&](warpgroup& self) { read_from(self, args, number, shared.mine, 1 - rank); });
        block.cluster_sync();
    }
};
CORRECT(clusters, idle_cluster_leaves, 6)

}  // namespace
