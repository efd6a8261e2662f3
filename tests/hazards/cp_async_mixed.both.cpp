// cp.async together with other roles, TMA and wgmma, which complete in other ways and through another proxy.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warpgroup_values = warpgroup_tile<float, 64, 32>;
using row_tile = warp_tile<float, 16, 32>;
using accumulator = warpgroup_tile<float, 64, 64>;

struct copied_and_loaded {
    tile values, others;
    transaction_barrier landing, handed;
};

template <class Block>
IMBREX_KERNEL void init_barriers(Block& block, copied_and_loaded& shared, int warps) {
    shared.landing.init(block, 1);
    shared.handed.init(block, warps);
    fence_barriers(block);
    block.sync();
}

// Data copied by cp.async is stored by TMA without a fence.
template <bool Fixed>
struct copies_stored_without_fence : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            copy_async(self, shared.values, args.in.at(0, 0));
            commit_copies(self);
            wait_copies(self);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            store_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
HAZARD(cp_async, copies_stored_without_fence, 1, missing_proxy_fence)

// The fence precedes the wait for the copies: it does not cover what had not landed.
template <bool Fixed>
struct fence_before_the_copies_landed : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            copy_async(self, shared.values, args.in.at(0, 0));
            commit_copies(self);
            if constexpr (!Fixed) fence_async(self);
            wait_copies(self);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            store_async(self, args.out_tensor.tile(0, 0), shared.values);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
HAZARD(cp_async, fence_before_the_copies_landed, 1, missing_proxy_fence)

struct copied_operands {
    operand a, b;
};

// An operand copied by cp.async is multiplied by wgmma without a fence.
template <bool Fixed>
struct copies_multiplied_without_fence : hazard_kernel<4> {
    using shared_memory = copied_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            copy_async(self, shared.a, args.a.at(0, 0));
            copy_async(self, shared.b, args.a.at(64, 0));
            commit_copies(self);
            wait_copies(self);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            mma_ab(self, sum, shared.a, shared.b, accumulation::replace);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(cp_async, copies_multiplied_without_fence, 1, missing_proxy_fence)

// The next operand is copied over one that a product in flight reads.
template <bool Fixed>
struct copy_over_an_operand_in_flight : hazard_kernel<4> {
    using shared_memory = copied_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            for (int i = 0; i < 3; ++i) {
                copy_async(self, shared.a, args.a.at(64 * i, 0));
                commit_copies(self);
                wait_copies(self);
                fence_async(self);
                self.sync();
                mma_ab_async(self, sum, shared.a, shared.a);
                if constexpr (Fixed) wait_mma(self);
                self.sync();
            }
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(cp_async, copy_over_an_operand_in_flight, 1, overwritten_in_flight)

// The next tile is copied over the source of a TMA store that has not been waited for.
template <bool Fixed>
struct copy_over_the_source_of_a_store : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 3; ++i) {
                copy_async(self, shared.values, args.in.at(64 * i, 0));
                commit_copies(self);
                wait_copies(self);
                fence_async(self);
                self.sync();
                store_async(self, args.out_tensor.tile(i, 0), shared.values);
                commit_stores(self);
                if constexpr (Fixed) wait_stores_read(self);
                self.sync();
            }
            wait_stores(self);
        });
    }
};
HAZARD(cp_async, copy_over_the_source_of_a_store, 1, overwritten_in_flight)

// Eight rows are replaced by cp.async while the TMA load of the tile is in flight: either may land last.
template <bool Fixed>
struct copy_over_a_landing_tile : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 1);
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            if constexpr (Fixed) shared.landing.wait(self, 0);
            copy_async(self, shared.values.subtile<8>(0), args.in.at(64, 0));
            commit_copies(self);
            wait_copies(self);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
            self.sync();
            row_tile values;
            load(self, values, shared.values.subtile<16>(0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(cp_async, copy_over_a_landing_tile, 1, overwritten_in_flight)

// A TMA load into a tile whose cp.async is in flight.
template <bool Fixed>
struct load_over_a_copy_in_flight : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 1);
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            copy_async(self, shared.values, args.in.at(64, 0));
            commit_copies(self);
            if constexpr (Fixed) {
                wait_copies(self);
                fence_async(self);
                self.sync();
            }
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            shared.landing.wait(self, 0);
            wait_copies(self);
            self.sync();
            row_tile values;
            load(self, values, shared.values.subtile<16>(0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(cp_async, load_over_a_copy_in_flight, 1, overwritten_in_flight)

// A wait for the barrier of the TMA load does not wait for the copy by cp.async next to it.
template <bool Fixed>
struct barrier_waited_for_instead_of_the_copy : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 1);
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            copy_async(self, shared.others, args.in.at(64, 0));
            commit_copies(self);
            shared.landing.wait(self, 0);
            if constexpr (Fixed) wait_copies(self);
            self.sync();
            row_tile values, others;
            load(self, values, shared.values.subtile<16>(0));
            load(self, others, shared.others.subtile<16>(0));
            combine(self, values, others, functional::subtract{});
            store(self, args.out.at(0, 0), values);
            wait_copies(self);
        });
    }
};
HAZARD(cp_async, barrier_waited_for_instead_of_the_copy, 1, read_before_landed)

// And the reverse: wait_copies does not wait for the TMA load.
template <bool Fixed>
struct copies_waited_for_instead_of_the_barrier : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 1);
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            commit_copies(self);
            wait_copies(self);
            if constexpr (Fixed) shared.landing.wait(self, 0);
            row_tile values;
            load(self, values, shared.values.subtile<16>(0));
            store(self, args.out.at(0, 0), values);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
        });
    }
};
HAZARD(cp_async, copies_waited_for_instead_of_the_barrier, 1, read_before_landed)

// The copying role arrives before it has waited for its copies. The reader waits for its own, of which there are none.
template <bool Fixed>
struct arrives_with_copies_in_flight : hazard_kernel<8> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 1);
        block.roles(producer("copier",
                             [&](warp& self) {
                                 copy_async(self, shared.values, args.in.at(0, 0));
                                 commit_copies(self);
                                 if constexpr (Fixed) wait_copies(self);
                                 shared.handed.arrive(self);
                                 wait_copies(self);
                             }),
                    consumers<1>("reader", [&](warpgroup& self) {
                        shared.handed.wait(self, 0);
                        wait_copies(self);
                        warpgroup_values values;
                        load(self, values, shared.values);
                        store(self, args.out.at(0, 0), values);
                    }));
    }
};
HAZARD(cp_async, arrives_with_copies_in_flight, 1, read_before_landed)

// Rows are copied over ordinary writes of the same scope without a sync in between: either may be last.
template <bool Fixed>
struct copy_over_ordinary_writes : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_values values;
            load(self, values, args.in.at(64, 0));
            store(self, shared.values, values);
            if constexpr (Fixed) self.sync();
            copy_async(self, shared.values.subtile<32>(32), args.in.at(0, 0));
            commit_copies(self);
            wait_copies(self);
            self.sync();
            load(self, values, shared.values);
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(cp_async, copy_over_ordinary_writes, 1, unsynchronised_scope)

// Ordinary writes over a copy in flight: the copy may land on top of them.
template <bool Fixed>
struct ordinary_writes_over_a_copy : hazard_kernel<4> {
    using shared_memory = copied_and_loaded;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_values values;
            load(self, values, args.in.at(64, 0));
            copy_async(self, shared.values, args.in.at(0, 0));
            commit_copies(self);
            if constexpr (Fixed) wait_copies(self);
            self.sync();
            store(self, shared.values, values);
            wait_copies(self);
            self.sync();
            store(self, args.out.at(0, 0), shared.values);
        });
    }
};
HAZARD(cp_async, ordinary_writes_over_a_copy, 1, overwritten_in_flight)

}  // namespace
