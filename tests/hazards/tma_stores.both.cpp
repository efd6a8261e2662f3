// TMA stores and reductions: groups, the proxy fence, the source tile, and the global memory that they write.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

struct one_tile {
    tile values;
    transaction_barrier landing;
};
struct two_tiles {
    tile values[2];
    transaction_barrier landing;
};

template <class Block, class Shared>
IMBREX_KERNEL void begin(Block& block, Shared& shared) {
    shared.landing.init(block, 1);
    fence_barriers(block);
    block.sync();
}

// The writes of the tile are not fenced before the reduction reads it.
template <bool Fixed>
struct reduce_add_without_proxy_fence : hazard_kernel<4> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 32> values;
            load(self, values, args.in.at(0, 0));
            store(self, shared.values, values);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            reduce_add_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, reduce_add_without_proxy_fence, 1, missing_proxy_fence)

// The source of the reduction is overwritten before the reduction has read it.
template <bool Fixed>
struct source_of_a_reduction_overwritten : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 3; ++i) {
                load(self, shared.values, args.in.at(64 * i, 0));
                fence_async(self);
                reduce_add_async(self, args.out_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                if constexpr (Fixed) wait_stores_read(self);
            }
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, source_of_a_reduction_overwritten, 1, overwritten_in_flight)

// Two buffers, and the wait leaves two groups of stores in flight instead of one.
template <bool Fixed>
struct waits_for_one_group_too_few : hazard_kernel<1> {
    using shared_memory = two_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 4; ++i) {
                wait_stores_read<Fixed ? 1 : 2>(self);
                load(self, shared.values[i % 2], args.in.at(64 * i, 0));
                fence_async(self);
                store_async(self, args.out_tensor.tile(i, 0), shared.values[i % 2]);
                commit_stores(self);
            }
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, waits_for_one_group_too_few, 1, overwritten_in_flight)

// Two stores in one group: the wait for all but the newest group waits for none of them.
template <bool Fixed>
struct two_stores_in_one_group : hazard_kernel<1> {
    using shared_memory = two_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.values[0], args.in.at(0, 0));
            load(self, shared.values[1], args.in.at(64, 0));
            fence_async(self);
            store_async(self, args.out_tensor.tile(0, 0), shared.values[0]);
            if constexpr (Fixed) commit_stores(self);
            store_async(self, args.out_tensor.tile(1, 0), shared.values[1]);
            commit_stores(self);
            wait_stores_read<1>(self);
            fill(self, shared.values[0], 1.0f);
            fence_async(self);
            store_async(self, args.out_tensor.tile(2, 0), shared.values[0]);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, two_stores_in_one_group, 1, overwritten_in_flight)

// A store that was not committed is in no group, so the wait does not include it.
template <bool Fixed>
struct store_not_committed : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.values, args.in.at(0, 0));
            fence_async(self);
            store_async(self, args.out_tensor.tile(0, 0), shared.values);
            if constexpr (Fixed) commit_stores(self);
            wait_stores_read(self);
            fill(self, shared.values, 1.0f);
            fence_async(self);
            store_async(self, args.out_tensor.tile(1, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, store_not_committed, 1, overwritten_in_flight)

// The last wait leaves a group in flight, and the block exits with the memory that it reads.
template <bool Fixed>
struct exit_waits_for_all_but_one_store : hazard_kernel<1> {
    using shared_memory = two_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 2; ++i) {
                load(self, shared.values[i], args.in.at(64 * i, 0));
                fence_async(self);
                store_async(self, args.out_tensor.tile(i, 0), shared.values[i]);
                commit_stores(self);
            }
            wait_stores_read<Fixed ? 0 : 1>(self);
        });
    }
};
HAZARD(tma, exit_waits_for_all_but_one_store, 1, in_flight_at_exit)

struct tile_with_turn {
    tile values;
    transaction_barrier turn;
};

// Groups of stores belong to the issuing warp: the wait of another warp waits for nothing.
template <bool Fixed>
struct store_waited_for_by_another_warp : hazard_kernel<2> {
    using shared_memory = tile_with_turn;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.turn.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                load(self, shared.values, args.in.at(0, 0));
                fence_async(self);
                store_async(self, args.out_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                if constexpr (Fixed) wait_stores_read(self);
                shared.turn.arrive(self);
                wait_stores_read(self);
            } else {
                shared.turn.wait(self, 0);
                wait_stores_read(self);
                fill(self, shared.values, 1.0f);
                fence_async(self);
                store_async(self, args.out_tensor.tile(1, 0), shared.values);
                commit_stores(self);
                wait_stores_read(self);
            }
        });
    }
};
HAZARD(tma, store_waited_for_by_another_warp, 1, overwritten_in_flight)

// The tile goes from a TMA load to a TMA store without a wait for the load.
template <bool Fixed>
struct store_of_a_tile_still_landing : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            if constexpr (Fixed) shared.landing.wait(self, 0);
            store_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
        });
    }
};
HAZARD(tma, store_of_a_tile_still_landing, 1, read_before_landed)

// The next TMA load overwrites the source of a TMA store in flight.
template <bool Fixed>
struct load_over_the_source_of_a_store : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 3; ++i) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                shared.landing.wait(self, i);
                store_async(self, args.out_tensor.tile(i, 0), shared.values);
                commit_stores(self);
                if constexpr (Fixed) wait_stores_read(self);
            }
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, load_over_the_source_of_a_store, 1, overwritten_in_flight)

// The store goes to a tile wholly before the first row.
template <bool Fixed>
struct store_before_the_first_row : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.values, args.in.at(0, 0));
            fence_async(self);
            store_async(self, args.out_tensor.at(Fixed ? 0 : -64, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, store_before_the_first_row, 1, beyond_limits)

// The store goes to a tensor that was made for loads.
template <bool Fixed>
struct store_to_a_tensor_for_loads : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.values, args.in.at(64, 0));
            fence_async(self);
            store_async(self, (Fixed ? args.out_tensor : args.in_tensor).tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, store_to_a_tensor_for_loads, 1, beyond_limits)

// wait_stores_read waits until the tile was read, not until global memory was written.
template <bool Fixed>
struct global_read_after_the_read_wait : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.values, args.in.at(0, 0));
            fence_async(self);
            store_async(self, args.work_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) {
                wait_stores(self);
            } else {
                wait_stores_read(self);
            }
            for (int row = 0; row < tile::rows; row += 16) {
                warp_tile<float, 16, 32> values;
                load(self, values, args.work.at(row, 0));
                store(self, args.out.at(row, 0), values);
            }
        });
    }
};
HAZARD(tma, global_read_after_the_read_wait, 1, read_before_landed)

// The same, and the reader is a TMA load.
template <bool Fixed>
struct tma_load_after_the_read_wait : hazard_kernel<1> {
    using shared_memory = two_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            load(self, shared.values[0], args.in.at(0, 0));
            fence_async(self);
            store_async(self, args.work_tensor.tile(0, 0), shared.values[0]);
            commit_stores(self);
            if constexpr (Fixed) {
                wait_stores(self);
            } else {
                wait_stores_read(self);
            }
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values[1], args.work_tensor.tile(0, 0), shared.landing);
            shared.landing.wait(self, 0);
            store(self, args.out.at(0, 0), shared.values[1]);
        });
    }
};
HAZARD(tma, tma_load_after_the_read_wait, 1, read_before_landed)

struct two_sources_with_turn {
    tile values[2];
    transaction_barrier turn;
};

// One warp stores to the rectangle to which another adds, and nothing orders them.
template <bool Fixed>
struct reduction_races_with_a_store : hazard_kernel<2> {
    using shared_memory = two_sources_with_turn;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.turn.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            tile& mine = shared.values[self.index()];
            load(self, mine, args.in.at(64 * self.index(), 0));
            fence_async(self);
            if (self.index() == 0) {
                store_async(self, args.out_tensor.tile(0, 0), mine);
                commit_stores(self);
                wait_stores(self);
                shared.turn.arrive(self);
            } else {
                if constexpr (Fixed) shared.turn.wait(self, 0);
                reduce_add_async(self, args.out_tensor.tile(0, 0), mine);
                commit_stores(self);
                wait_stores(self);
            }
        });
    }
};
HAZARD(tma, reduction_races_with_a_store, 1, race, overwritten_in_flight)

// Two blocks store tiles that overlap by half.
template <bool Fixed>
struct blocks_store_overlapping_tiles : hazard_kernel<1> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int number = block.index().x;
        block.each_warp([&](warp& self) {
            load(self, shared.values, args.in.at(64 * number, 0));
            fence_async(self);
            store_async(self, args.out_tensor.at((Fixed ? 64 : 32) * number, 0), shared.values);
            commit_stores(self);
            wait_stores_read(self);
        });
    }
};
HAZARD(tma, blocks_store_overlapping_tiles, 2, race, overwritten_in_flight)

}  // namespace
