// Clusters: TMA multicast and DSMEM stores, which land on a barrier of the block that receives them.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using group_values = warpgroup_tile<float, 64, 32>;

// A copy of one tile by multicast, or from the registers of another block.
struct receiver {
    tile values;
    transaction_barrier landing;
};
// Multicast needs sm_90a.
template <int Warps>
struct multicast_kernel : hazard_kernel<Warps, 2> {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
};

struct on_barrier {
    transaction_barrier* landing;
    IMBREX_KERNEL transaction_barrier& barrier() const { return *landing; }
};

template <class Block>
IMBREX_KERNEL void begin(Block& block, transaction_barrier& landing) {
    landing.init(block, 1);
    fence_barriers(block);
    block.cluster_sync();
}

IMBREX_KERNEL void read(const warpgroup& self, const corpus_arguments& args, int number, const tile& from) {
    group_values values;
    load(self, values, from);
    store(self, args.out.at(64 * number, 0), values);
}

// Block 0 multicasts as soon as its own barrier is initialised.
template <bool Fixed>
struct multicast_before_the_other_init : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.landing.init(block, 1);
        fence_barriers(block);
        if constexpr (Fixed) {
            block.cluster_sync();
        } else {
            block.sync();
        }
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, tile::bytes);
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing}, 3);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        shared.landing.wait(self, 0);
                        read(self, args, rank, shared.values);
                    }));
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, multicast_before_the_other_init, 2, barrier_not_initialised)

struct both_halves {
    tile half[2];
};
struct ring_of_halves {
    pipeline<both_halves, 1, 2> ring;
};

// Each block loads a half for both, but the mask names only the other block.
template <bool Fixed>
struct mask_without_its_own_block : multicast_kernel<8> {
    using shared_memory = ring_of_halves;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.cluster_sync();
        const unsigned mask = Fixed ? 3u : 1u << (1 - rank);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 2; ++i) {
                            auto slot = filling.acquire();
                            load_multicast(self, slot->half[rank], args.in_tensor.tile(2 * i + rank, 0), slot, mask);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 2; ++i) {
                            auto stage = full.wait();
                            read(self, args, 2 * i + rank, stage->half[1 - rank]);
                        }
                    }));
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, mask_without_its_own_block, 2, wrong_byte_count, deadlock)

// The mask names blocks 0 and 2 of a cluster of two.
template <bool Fixed>
struct mask_past_the_cluster : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared.landing);
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, tile::bytes);
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing},
                                       Fixed ? 3u : 5u);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        shared.landing.wait(self, 0);
                        read(self, args, rank, shared.values);
                    }));
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, mask_past_the_cluster, 2, beyond_limits)

// Both blocks load into the first half, and nobody into the second.
template <bool Fixed>
struct both_blocks_load_one_half : multicast_kernel<8> {
    using shared_memory = ring_of_halves;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.cluster_sync();
        block.roles(producer([&](warp& self) {
                        auto slot = shared.ring.producer(self).acquire();
                        load_multicast(self, slot->half[Fixed ? rank : 0], args.in_tensor.tile(rank, 0), slot, 3);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto stage = full.wait();
                        read(self, args, 2 * rank, stage->half[0]);
                        read(self, args, 2 * rank + 1, stage->half[1]);
                    }));
        block.cluster_sync();
    }
};
HAZARD(clusters, both_blocks_load_one_half, 2, overwritten_in_flight, race, uninitialised_read)

// A block refills the stage of both blocks when only its own consumers have released it.
template <bool Fixed>
struct released_in_its_own_block_only : multicast_kernel<8> {
    using shared_memory = ring_of_halves;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.ring.init(block, Fixed ? 4 : 2);  // consumer warps of each block
        fence_barriers(block);
        block.cluster_sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto slot = filling.acquire();
                            load_multicast(self, slot->half[rank], args.in_tensor.tile(2 * i + rank, 0), slot, 3);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (unsigned i = 0; i < 3; ++i) {
                            shared.ring.full[0].wait(self, i);
                            read(self, args, 2 * i + rank, shared.ring.items[0].half[1 - rank]);
                            shared.ring.empty[0].arrive(self);
                            if constexpr (Fixed) shared.ring.empty[0].arrive_at(self, 1 - rank);
                        }
                    }));
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, released_in_its_own_block_only, 2, refilled_before_release, read_before_landed,
                  overwritten_in_flight, wrong_byte_count)

// Block 1 only receives: a release of block 0 may arrive there before the phase it follows is complete.
template <bool Fixed>
struct receiver_without_a_share : multicast_kernel<8> {
    using shared_memory = ring_of_halves;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.cluster_sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto slot = filling.acquire();
                            for (int half = 0; half < 2; ++half) {
                                if (rank != (Fixed ? half : 0)) continue;
                                load_multicast(self, slot->half[half], args.in_tensor.tile(2 * i + half, 0), slot, 3);
                            }
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto stage = full.wait();
                            read(self, args, 2 * i + rank, stage->half[rank]);
                        }
                    }));
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, receiver_without_a_share, 2, arrived_too_often, refilled_before_release)

// The blocks read the tile of the multicast before they wait for it.
template <bool Fixed>
struct multicast_read_before_the_wait : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared.landing);
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, tile::bytes);
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing}, 3);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        if constexpr (Fixed) shared.landing.wait(self, 0);
                        read(self, args, rank, shared.values);
                        if constexpr (!Fixed) shared.landing.wait(self, 0);
                    }));
        block.cluster_sync();
    }
};
HAZARD(clusters, multicast_read_before_the_wait, 2, read_before_landed, refilled_before_release, uninitialised_read)

// A wait for the own copy of a multicast does not cover the copy in the other block.
template <bool Fixed>
struct wait_for_the_own_copy_only : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared.landing);
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, tile::bytes);
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing}, 3);
                    }),
                    consumers<1>([&](warpgroup& self) { shared.landing.wait(self, 0); }));
        if constexpr (Fixed) block.cluster_sync();
        block.roles(producer([&](warp&) {}), consumers<1>([&](warpgroup& self) {
                        group_values values;
                        dsmem_load(self, values, shared.values, 1 - rank);
                        store(self, args.out.at(64 * rank, 0), values);
                    }));
        block.cluster_sync();
    }
};
HAZARD(clusters, wait_for_the_own_copy_only, 2, read_before_landed, uninitialised_read)

// Block 1 clears its tile after the cluster sync, while the multicast of block 0 may land there.
template <bool Fixed>
struct cleared_while_a_multicast_lands : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        if constexpr (Fixed) {
            fill(block, shared.values, 0.0f);
            fence_async(block);
        }
        begin(block, shared.landing);
        if constexpr (!Fixed) {
            fill(block, shared.values, 0.0f);
            fence_async(block);
            block.sync();
        }
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, tile::bytes);
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing}, 3);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        shared.landing.wait(self, 0);
                        read(self, args, rank, shared.values);
                    }));
        block.cluster_sync();
    }
};
HAZARD(clusters, cleared_while_a_multicast_lands, 2, overwritten_in_flight, race)

// A cluster sync does not order the reads that follow it: the multicast may overwrite what the other block reads.
template <bool Fixed>
struct multicast_over_a_read_after_the_sync : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        load(block, shared.values, args.in.at(64 * rank, 0));
        fence_async(block);
        block.sync();
        if constexpr (Fixed) store(block, args.out.at(64 * rank, 0), shared.values);
        begin(block, shared.landing);
        if constexpr (!Fixed) store(block, args.out.at(64 * rank, 0), shared.values);
        block.sync();
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, tile::bytes);
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(2, 0), on_barrier{&shared.landing}, 3);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        shared.landing.wait(self, 0);
                        read(self, args, 2 + rank, shared.values);
                    }));
        block.cluster_sync();
    }
};
HAZARD(clusters, multicast_over_a_read_after_the_sync, 2, refilled_before_release, read_before_landed)

// The receiver arrives at its barrier without the bytes of the multicast.
template <bool Fixed>
struct receiver_expects_no_bytes : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared.landing);
        block.roles(producer([&](warp& self) {
                        if (Fixed || rank == 0) {
                            shared.landing.expect(self, tile::bytes);
                        } else {
                            shared.landing.arrive(self);
                        }
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing}, 3);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        shared.landing.wait(self, 0);
                        read(self, args, rank, shared.values);
                    }));
        block.cluster_sync();
    }
};
HAZARD(clusters, receiver_expects_no_bytes, 2, wrong_byte_count, read_before_landed, uninitialised_read)

// Block 1 has no use for the last multicast and exits without a wait for it.
template <bool Fixed>
struct receiver_exits_before_the_multicast : multicast_kernel<8> {
    using shared_memory = receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared.landing);
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, tile::bytes);
                        if (rank != 0) return;
                        load_multicast(self, shared.values, args.in_tensor.tile(0, 0), on_barrier{&shared.landing}, 3);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        if (!Fixed && rank == 1) return;
                        shared.landing.wait(self, 0);
                        if (rank == 0) read(self, args, rank, shared.values);
                    }));
    }
};
HAZARD(clusters, receiver_exits_before_the_multicast, 2, in_flight_at_exit)

using buffer = dsmem_buffer<float, 64, 32>;

struct buffer_receiver {
    buffer values;
    transaction_barrier landing[2], ready;
};

template <class Block>
IMBREX_KERNEL void begin(Block& block, buffer_receiver& shared) {
    shared.landing[0].init(block, 1);
    shared.landing[1].init(block, 1);
    shared.ready.init(block, 4);
    fence_barriers(block);
    block.cluster_sync();
}
// Block 0 sends a tile of the input to block 1.
IMBREX_KERNEL void send(const warpgroup& self, buffer& to, const corpus_arguments& args, int number,
                        transaction_barrier& landing) {
    group_values values;
    load(self, values, args.in.at(64 * number, 0));
    dsmem_store_async(self, to, values, landing, 1);
}
IMBREX_KERNEL void receive(const warpgroup& self, const corpus_arguments& args, int number, const buffer& from) {
    group_values values;
    load_dsmem_buffer(self, values, from);
    store(self, args.out.at(64 * number, 0), values);
}
// The four warps of a warpgroup expect the buffer's bytes on a barrier of one warp: one of the warps does it.
template <class Block>
IMBREX_KERNEL void expect_buffer(Block& block, transaction_barrier& landing, int bytes = buffer::bytes) {
    block.each_warp([&](warp& self) {
        if (self.index() == 0) landing.expect(self, bytes);
    });
}

// The receiver reads the buffer without a wait.
template <bool Fixed>
struct buffer_read_without_a_wait : hazard_kernel<4, 2> {
    using shared_memory = buffer_receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        if (rank == 1) expect_buffer(block, shared.landing[0]);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) return send(self, shared.values, args, 0, shared.landing[0]);
            if constexpr (Fixed) shared.landing[0].wait(self, 0);
            fence_cluster(self);
            receive(self, args, 0, shared.values);
            if constexpr (!Fixed) shared.landing[0].wait(self, 0);
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, buffer_read_without_a_wait, 2, read_before_landed, uninitialised_read)

// The receiver expects half of the bytes that are stored.
template <bool Fixed>
struct half_of_the_buffer_expected : hazard_kernel<4, 2> {
    using shared_memory = buffer_receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        if (rank == 1) expect_buffer(block, shared.landing[0], Fixed ? buffer::bytes : buffer::bytes / 2);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) return send(self, shared.values, args, 0, shared.landing[0]);
            shared.landing[0].wait(self, 0);
            fence_cluster(self);
            receive(self, args, 0, shared.values);
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, half_of_the_buffer_expected, 2, wrong_byte_count, read_before_landed)

// The receiver expects twice the bytes that are stored, so its wait never ends.
template <bool Fixed>
struct twice_the_buffer_expected : hazard_kernel<4, 2> {
    using shared_memory = buffer_receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        if (rank == 1) expect_buffer(block, shared.landing[0], Fixed ? buffer::bytes : 2 * buffer::bytes);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) return send(self, shared.values, args, 0, shared.landing[0]);
            shared.landing[0].wait(self, 0);
            fence_cluster(self);
            receive(self, args, 0, shared.values);
        });
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, twice_the_buffer_expected, 2, wrong_byte_count)

// The sender expects the bytes, on its own barrier; they land on the receiver's.
template <bool Fixed>
struct bytes_expected_by_the_sender : hazard_kernel<4, 2> {
    using shared_memory = buffer_receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        if (rank == (Fixed ? 1 : 0)) expect_buffer(block, shared.landing[0]);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) return send(self, shared.values, args, 0, shared.landing[0]);
            shared.landing[0].wait(self, 0);
            fence_cluster(self);
            receive(self, args, 0, shared.values);
        });
        block.cluster_sync();
    }
};
HAZARD_THAT_HANGS(clusters, bytes_expected_by_the_sender, 2, wrong_byte_count, incomplete_collective, deadlock)

// The second store overwrites a buffer that the receiver has not released.
template <bool Fixed>
struct buffer_stored_again_before_its_release : hazard_kernel<4, 2> {
    using shared_memory = buffer_receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        for (int i = 0; i < 2; ++i) {
            if (rank == 1) expect_buffer(block, shared.landing[i]);
        }
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                if (rank == 0) {
                    if (Fixed && i > 0) shared.ready.wait(self, 0);
                    send(self, shared.values, args, i, shared.landing[i]);
                } else {
                    shared.landing[i].wait(self, 0);
                    fence_cluster(self);
                    receive(self, args, i, shared.values);
                    if (i == 0) shared.ready.arrive_at(self, 0);
                }
            }
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, buffer_stored_again_before_its_release, 2, refilled_before_release, read_before_landed,
       overwritten_in_flight)

// The receiver exits before the store to its buffer has landed.
template <bool Fixed>
struct receiver_exits_before_the_store : hazard_kernel<4, 2> {
    using shared_memory = buffer_receiver;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        begin(block, shared);
        if (rank == 1) expect_buffer(block, shared.landing[0]);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) return send(self, shared.values, args, 0, shared.landing[0]);
            if constexpr (Fixed) shared.landing[0].wait(self, 0);
            group_values values;
            load(self, values, args.in.at(64, 0));
            store(self, args.out.at(64, 0), values);
        });
    }
};
HAZARD(clusters, receiver_exits_before_the_store, 2, in_flight_at_exit)

struct tile_or_buffer {
    overlay<tile, buffer> memory;
    transaction_barrier landing, ready;
};

// The receiver's ordinary writes to the memory of the buffer are not fenced before it declares the buffer ready.
template <bool Fixed>
struct buffer_over_unfenced_writes : hazard_kernel<4, 2> {
    using shared_memory = tile_or_buffer;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.landing.init(block, 1);
        shared.ready.init(block, 4);
        fence_barriers(block);
        block.cluster_sync();
        if (rank == 1) expect_buffer(block, shared.landing);
        block.each_warpgroup([&](warpgroup& self) {
            if (rank == 0) {
                shared.ready.wait(self, 0);
                return send(self, shared.memory.as<buffer>(), args, 0, shared.landing);
            }
            fill(self, shared.memory.as<tile>(), 1.0f);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            shared.ready.arrive_at(self, 0);
            shared.landing.wait(self, 0);
            fence_cluster(self);
            receive(self, args, 0, shared.memory.as<buffer>());
        });
        block.cluster_sync();
    }
};
HAZARD(clusters, buffer_over_unfenced_writes, 2, missing_proxy_fence)

}  // namespace
