// TMA stores and reductions: when their shared source may be overwritten, and when their result may be read.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warpgroup_values = warpgroup_tile<float, 64, 32>;
using row_tile = warp_tile<float, 16, 32>;

struct staging {
    tile values;
    transaction_barrier landing, handed;
};

// A tile of the input through registers to shared memory, fenced and synced.
IMBREX_KERNEL void stage_tile(warpgroup& self, const corpus_arguments& args, tile& to, int number) {
    warpgroup_values values;
    load(self, values, args.in.at(64 * number, 0));
    store(self, to, values);
    fence_async(self);
    self.sync();
}

// A TMA reduction reads ordinary writes without a fence.
template <bool Fixed>
struct reduced_without_fence : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load(block, shared.values, args.in.at(0, 0));
        if constexpr (Fixed) fence_async(block);
        block.sync();
        reduce_add_async(block, args.out_tensor.tile(0, 0), shared.values);
        commit_stores(block);
        wait_stores(block);
    }
};
HAZARD(proxies, reduced_without_fence, 1, missing_proxy_fence)

// A TMA load into the source of a TMA store that has not been waited for.
template <bool Fixed>
struct loaded_over_a_store_in_flight : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            for (int i = 0; i < 2; ++i) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                shared.landing.wait(self, i);
                store_async(self, args.out_tensor.tile(i, 0), shared.values);
                commit_stores(self);
                if constexpr (Fixed) wait_stores_read(self);
            }
            wait_stores(self);
        });
    }
};
HAZARD(proxies, loaded_over_a_store_in_flight, 1, overwritten_in_flight)

// The warp that issued the store waits for it; the others overwrite the tile without waiting for that warp.
template <bool Fixed>
struct only_the_issuer_waits : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.handed.init(block, 1);
        fence_barriers(block);
        load(block, shared.values, args.in.at(0, 0));
        fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                store_async(self, args.out_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                wait_stores_read(self);
                shared.handed.arrive(self);
            }
            if constexpr (Fixed) shared.handed.wait(self, 0);
            row_tile next;
            load(self, next, args.in.at(64 + 16 * self.index(), 0));
            store(self, shared.values.subtile<16>(16 * self.index()), next);
        });
        block.sync();
        store(block, args.out.at(64, 0), shared.values);
    }
};
HAZARD(proxies, only_the_issuer_waits, 1, overwritten_in_flight, race)

// The group of the store is committed after the wait, which therefore does not cover it.
template <bool Fixed>
struct committed_after_the_wait : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                stage_tile(self, args, shared.values, i);
                store_async(self, args.out_tensor.tile(i, 0), shared.values);
                if constexpr (Fixed) commit_stores(self);
                wait_stores_read(self);
                if constexpr (!Fixed) commit_stores(self);
                self.sync();
            }
            wait_stores(self);
        });
    }
};
HAZARD(proxies, committed_after_the_wait, 1, overwritten_in_flight)

// With two buffers, all but one store must have read their source. The wait leaves two.
template <bool Fixed>
struct two_buffers_and_two_stores_left : hazard_kernel<4> {
    struct shared_memory {
        tile buffers[2];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 5; ++i) {
                wait_stores_read<Fixed ? 1 : 2>(self);
                self.sync();
                stage_tile(self, args, shared.buffers[i % 2], i);
                store_async(self, args.out_tensor.tile(i, 0), shared.buffers[i % 2]);
                commit_stores(self);
            }
            wait_stores(self);
        });
    }
};
HAZARD(proxies, two_buffers_and_two_stores_left, 1, overwritten_in_flight)

// The source of a store is overwritten after the wait, but before the warps have synced: only the issuer waited.
template <bool Fixed>
struct restaged_without_a_sync : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                stage_tile(self, args, shared.values, i);
                store_async(self, args.out_tensor.tile(i, 0), shared.values);
                commit_stores(self);
                wait_stores(self);
                if constexpr (Fixed) self.sync();
            }
        });
    }
};
HAZARD(proxies, restaged_without_a_sync, 1, unsynchronised_scope)

// The block exits before its store has read the shared tile.
template <bool Fixed>
struct exits_before_the_store_has_read : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            stage_tile(self, args, shared.values, 0);
            store_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) wait_stores_read(self);
        });
    }
};
HAZARD(proxies, exits_before_the_store_has_read, 1, in_flight_at_exit)

// Global memory is read back after the store has read its source, but before it has written its target.
template <bool Fixed>
struct read_back_before_the_store_wrote : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            stage_tile(self, args, shared.values, 0);
            store_async(self, args.work_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) {
                wait_stores(self);
            } else {
                wait_stores_read(self);
            }
            self.sync();
            warpgroup_values values;
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(proxies, read_back_before_the_store_wrote, 1, read_before_landed)

// The same when TMA loads what TMA has stored.
template <bool Fixed>
struct loaded_back_before_the_store_wrote : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        load(block, shared.values, args.in.at(0, 0));
        fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                store_async(self, args.work_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                if constexpr (Fixed) {
                    wait_stores(self);
                } else {
                    wait_stores_read(self);
                }
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            row_tile values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(proxies, loaded_back_before_the_store_wrote, 1, read_before_landed)

// An ordinary store to global memory over a TMA store that has not written yet: either may be last.
template <bool Fixed>
struct overwritten_before_the_store_wrote : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_values zeros;
            fill(self, zeros, 0.0f);
            stage_tile(self, args, shared.values, 0);
            store_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            if constexpr (Fixed) {
                wait_stores(self);
            } else {
                wait_stores_read(self);
            }
            self.sync();
            store(self, args.out.at(0, 0), zeros);
        });
    }
};
HAZARD(proxies, overwritten_before_the_store_wrote, 1, overwritten_in_flight, race)

// Ordinary writes to global memory and a TMA load of them without a fence.
template <bool Fixed>
struct global_writes_loaded_without_fence : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_values values;
            load(self, values, args.in.at(0, 0));
            store(self, args.work.at(0, 0), values);
            if constexpr (Fixed) fence_async_global(self);
        });
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            row_tile values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(proxies, global_writes_loaded_without_fence, 1, missing_proxy_fence)

// A TMA reduction adds to ordinary writes to global memory without a fence.
template <bool Fixed>
struct added_to_unfenced_global_writes : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
        });
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_values first;
            load(self, first, args.in.at(64, 0));
            store(self, args.out.at(0, 0), first);
            if constexpr (Fixed) fence_async_global(self);
            shared.landing.wait(self, 0);
            self.sync();
            reduce_add_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
HAZARD(proxies, added_to_unfenced_global_writes, 1, missing_proxy_fence)

}  // namespace
