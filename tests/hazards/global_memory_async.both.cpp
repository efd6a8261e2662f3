// Global memory that asynchronous operations read or write: TMA loads, stores and reductions, and cp.async.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;
using warp_values = warp_tile<float, 64, 32>;
using group_rows = warpgroup_tile<float, 64, 32>;

struct handover {};
using barriers = named_barriers<handover>;

struct staging {
    tile values;
    transaction_barrier landing;
};
struct two_tiles {
    tile first, second;
};

// Fills a shared tile with rows of `in`, ready for a TMA store.
template <class Scope>
IMBREX_KERNEL void stage(const Scope& self, tile& to, const corpus_arguments& args, int row) {
    load(self, to, args.in.at(row, 0));
    fence_async(self);
    self.sync();
}

template <class Block>
IMBREX_KERNEL void init_landing(Block& block, staging& shared) {
    shared.landing.init(block, 1);
    fence_barriers(block);
    block.sync();
}

// What a TMA store writes is read before anybody has waited for it.
template <bool Fixed>
struct tma_store_read_back_at_once : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 0);
            store_async(self, args.work_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) wait_stores(self);
            warp_values values;
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
            if constexpr (!Fixed) wait_stores(self);
        });
    }
};
HAZARD(global_memory, tma_store_read_back_at_once, 1, read_before_landed, uninitialised_read)

// wait_stores_read waits until the store has read shared memory, not until it has written global memory.
template <bool Fixed>
struct tma_store_waited_for_as_read_only : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 0);
            store_async(self, args.work_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) {
                wait_stores(self);
            } else {
                wait_stores_read(self);
            }
            warp_values values;
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, tma_store_waited_for_as_read_only, 1, read_before_landed, uninitialised_read)

// The store is not committed, so the wait does not include it.
template <bool Fixed>
struct tma_store_waited_for_before_its_commit : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 0);
            store_async(self, args.work_tensor.tile(0, 0), shared.values);
            if constexpr (Fixed) commit_stores(self);
            wait_stores(self);
            warp_values values;
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
HAZARD(global_memory, tma_store_waited_for_before_its_commit, 1, read_before_landed, uninitialised_read)

// wait_stores<1> leaves the newest store in flight, and that one is read.
template <bool Fixed>
struct newest_tma_store_read_back : hazard_kernel<1> {
    using shared_memory = two_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.first, args, 0);
            stage(self, shared.second, args, 64);
            store_async(self, args.work_tensor.tile(0, 0), shared.first);
            commit_stores(self);
            store_async(self, args.work_tensor.tile(1, 0), shared.second);
            commit_stores(self);
            wait_stores<1>(self);
            warp_values values;
            load(self, values, args.work.at(Fixed ? 0 : 64, 0));
            store(self, args.out.at(0, 0), values);
            wait_stores(self);
        });
    }
};
HAZARD(global_memory, newest_tma_store_read_back, 1, read_before_landed, uninitialised_read)

// Only the issuing warp of a warpgroup waits for the store; the others read without a sync.
template <bool Fixed>
struct group_reads_its_tma_store_without_sync : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            stage(self, shared.values, args, 0);
            store_async(self, args.work_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
            if constexpr (Fixed) self.sync();
            group_rows values;
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, group_reads_its_tma_store_without_sync, 1, read_before_landed, unsynchronised_scope)

// The storing role arrives at the barrier before its TMA store is complete.
template <bool Fixed>
struct role_arrives_before_its_tma_store_is_complete : hazard_kernel<8> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.roles(single_warps<1>("storer",
                                    [&](warp& self) {
                                        stage(self, shared.values, args, 0);
                                        store_async(self, args.work_tensor.tile(0, 0), shared.values);
                                        commit_stores(self);
                                        if constexpr (Fixed) wait_stores(self);
                                        barriers::of<handover>().arrive(self, 5);
                                        if constexpr (!Fixed) wait_stores(self);
                                    }),
                    consumers<1>("reader", [&](warpgroup& self) {
                        barriers::of<handover>().sync(self, 5);
                        group_rows values;
                        load(self, values, args.work.at(0, 0));
                        store(self, args.out.at(0, 0), values);
                    }));
    }
};
HAZARD(global_memory, role_arrives_before_its_tma_store_is_complete, 1, read_before_landed, race, uninitialised_read)

// An ordinary store goes to rows that a TMA store in flight may still write.
template <bool Fixed>
struct ordinary_store_over_a_tma_store : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 0);
            store_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) wait_stores(self);
            warp_rows ones;
            fill(self, ones, 1.0f);
            store(self, args.out.at(0, 0), ones);
            if constexpr (!Fixed) wait_stores(self);
        });
    }
};
HAZARD(global_memory, ordinary_store_over_a_tma_store, 1, overwritten_in_flight, race)

// Two TMA stores in flight write the same tile, in no order.
template <bool Fixed>
struct two_tma_stores_to_one_tile : hazard_kernel<1> {
    using shared_memory = two_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.first, args, 0);
            stage(self, shared.second, args, 64);
            store_async(self, args.out_tensor.tile(0, 0), shared.first);
            commit_stores(self);
            if constexpr (Fixed) wait_stores(self);
            store_async(self, args.out_tensor.tile(0, 0), shared.second);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
HAZARD(global_memory, two_tma_stores_to_one_tile, 1, overwritten_in_flight, race)

// The tiles of two blocks' TMA stores overlap by 16 rows.
template <bool Fixed>
struct tma_stores_of_two_blocks_overlap : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 64 * block.index().x);
            store_async(self, args.out_tensor.at((Fixed ? 64 : 48) * block.index().x, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
HAZARD(global_memory, tma_stores_of_two_blocks_overlap, 2, race)

// A block loads by TMA the tile that its neighbour stores by TMA.
template <bool Fixed>
struct tma_load_of_a_neighbours_tma_store : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_landing(block, shared);
        block.each_warp([&](warp& self) {
            const int own = block.index().x, other = 1 - own;
            stage(self, shared.values, args, 64 * own);
            store_async(self, args.work_tensor.tile(own, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.work_tensor.tile(Fixed ? own : other, 0), shared.landing);
            shared.landing.wait(self, 0);
            warp_values values;
            load(self, values, shared.values);
            store(self, args.out.at(64 * own, 0), values);
        });
    }
};
HAZARD(global_memory, tma_load_of_a_neighbours_tma_store, 2, race, read_before_landed, uninitialised_read)

// TMA loads what ordinary stores have written; the proxy fence is missing.
template <bool Fixed>
struct tma_load_of_ordinary_stores_without_fence : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_landing(block, shared);
        block.each_warp([&](warp& self) {
            warp_values values;
            load(self, values, args.in.at(0, 0));
            store(self, args.work.at(0, 0), values);
            if constexpr (Fixed) fence_async_global(self);
            self.sync();
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
            shared.landing.wait(self, 0);
            load(self, values, shared.values);
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, tma_load_of_ordinary_stores_without_fence, 1, missing_proxy_fence)

// TMA loads what another role writes; nothing orders the two.
template <bool Fixed>
struct tma_load_of_what_another_role_writes : hazard_kernel<8> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_landing(block, shared);
        block.roles(consumers<1>("writer",
                                 [&](warpgroup& self) {
                                     group_rows values;
                                     load(self, values, args.in.at(0, 0));
                                     store(self, args.work.at(0, 0), values);
                                     fence_async_global(self);
                                     if constexpr (Fixed) barriers::of<handover>().arrive(self, 5);
                                 }),
                    single_warps<1>("loader", [&](warp& self) {
                        if constexpr (Fixed) barriers::of<handover>().sync(self, 5);
                        shared.landing.expect(self, tile::bytes);
                        load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
                        shared.landing.wait(self, 0);
                        warp_values values;
                        load(self, values, shared.values);
                        store(self, args.out.at(0, 0), values);
                    }));
    }
};
HAZARD(global_memory, tma_load_of_what_another_role_writes, 1, race, uninitialised_read)

// cp.async reads what another role writes; nothing orders the two.
template <bool Fixed>
struct cp_async_of_what_another_role_writes : hazard_kernel<8> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.roles(consumers<1>("writer",
                                 [&](warpgroup& self) {
                                     group_rows values;
                                     load(self, values, args.in.at(0, 0));
                                     store(self, args.work.at(0, 0), values);
                                     if constexpr (Fixed) barriers::of<handover>().arrive(self, 8);
                                 }),
                    consumers<1>("reader", [&](warpgroup& self) {
                        if constexpr (Fixed) barriers::of<handover>().sync(self, 8);
                        copy_async(self, shared.values, args.work.at(0, 0));
                        commit_copies(self);
                        wait_copies(self);
                        self.sync();
                        group_rows values;
                        load(self, values, shared.values);
                        store(self, args.out.at(0, 0), values);
                    }));
    }
};
HAZARD(global_memory, cp_async_of_what_another_role_writes, 1, race, uninitialised_read)

// The source of a cp.async in flight is overwritten.
template <bool Fixed>
struct source_of_cp_async_overwritten : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            warp_values values;
            load(self, values, args.in.at(0, 0));
            store(self, args.work.at(0, 0), values);
            self.sync();
            copy_async(self, shared.values, args.work.at(0, 0));
            commit_copies(self);
            if constexpr (Fixed) wait_copies(self);
            self.sync();
            fill(self, values, 1.0f);
            store(self, args.work.at(0, 0), values);
            if constexpr (!Fixed) wait_copies(self);
            self.sync();
            load(self, values, shared.values);
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, source_of_cp_async_overwritten, 1, overwritten_in_flight, race)

// The source of a TMA load in flight is overwritten.
template <bool Fixed>
struct source_of_tma_load_overwritten : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_landing(block, shared);
        block.each_warp([&](warp& self) {
            warp_values values;
            load(self, values, args.in.at(0, 0));
            store(self, args.work.at(0, 0), values);
            fence_async_global(self);
            self.sync();
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
            if constexpr (Fixed) shared.landing.wait(self, 0);
            fill(self, values, 1.0f);
            store(self, args.work.at(0, 0), values);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
            load(self, values, shared.values);
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, source_of_tma_load_overwritten, 1, overwritten_in_flight, race)

// One role adds to a tile by TMA while another stores to its rows.
template <bool Fixed>
struct tma_reduction_races_with_a_store : hazard_kernel<8> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.roles(single_warps<1>("adder",
                                    [&](warp& self) {
                                        stage(self, shared.values, args, 0);
                                        reduce_add_async(self, args.out_tensor.tile(0, 0), shared.values);
                                        commit_stores(self);
                                        wait_stores(self);
                                    }),
                    consumers<1>("storer", [&](warpgroup& self) {
                        group_rows values;
                        load(self, values, args.in.at(64, 0));
                        store(self, args.out.at(Fixed ? 64 : 0, 0), values);
                    }));
    }
};
HAZARD(global_memory, tma_reduction_races_with_a_store, 1, race)

// The sum of a TMA reduction is read before it is complete.
template <bool Fixed>
struct tma_reduction_read_back_at_once : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 0);
            reduce_add_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) wait_stores(self);
            warp_values values;
            load(self, values, args.out.at(0, 0));
            store(self, args.out.at(64, 0), values);
            if constexpr (!Fixed) wait_stores(self);
        });
    }
};
HAZARD(global_memory, tma_reduction_read_back_at_once, 1, read_before_landed)

// The zeros of the sum are ordinary stores, which a TMA reduction does not see without a proxy fence.
template <bool Fixed>
struct tma_reduction_onto_ordinary_stores_without_fence : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 0);
            warp_values values;
            fill(self, values, 1.0f);
            store(self, args.work.at(0, 0), values);
            if constexpr (Fixed) fence_async_global(self);
            self.sync();
            reduce_add_async(self, args.work_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, tma_reduction_onto_ordinary_stores_without_fence, 1, missing_proxy_fence)

// A TMA reduction adds to memory that nobody has written.
template <bool Fixed>
struct tma_reduction_onto_unwritten_memory : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 0);
            if constexpr (Fixed) {
                store_async(self, args.work_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                wait_stores(self);
            }
            reduce_add_async(self, args.work_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
            warp_values values;
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, tma_reduction_onto_unwritten_memory, 1, uninitialised_read)

}  // namespace
