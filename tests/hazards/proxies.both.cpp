// The order between ordinary accesses to shared memory and those of TMA and wgmma: the writers fence, then sync or
// arrive, and only then may the async proxy access the bytes.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warpgroup_values = warpgroup_tile<float, 64, 32>;
using row_tile = warp_tile<float, 16, 32>;

struct staging {
    tile values;
    transaction_barrier landing, landing_again, handed;
};

// Initialises the barriers: one arrival for a landing, `warps` for `handed`.
template <class Block>
IMBREX_KERNEL void init_barriers(Block& block, staging& shared, int warps) {
    shared.landing.init(block, 1);
    shared.landing_again.init(block, 1);
    shared.handed.init(block, warps);
    fence_barriers(block);
    block.sync();
}

// A tile of the input through registers to shared memory.
template <class Shared>
IMBREX_KERNEL void stage_tile(warpgroup& self, const corpus_arguments& args, Shared& to, int number) {
    warpgroup_values values;
    load(self, values, args.in.at(64 * number, 0));
    store(self, to, values);
}

// Stores the staged tile by TMA and waits for it.
template <class Scope>
IMBREX_KERNEL void store_tile(Scope& self, const corpus_arguments& args, tile& from, int number) {
    store_async(self, args.out_tensor.tile(number, 0), from);
    commit_stores(self);
    wait_stores(self);
}

// The fence between the ordinary writes and the TMA store is missing.
template <bool Fixed>
struct stored_without_fence : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            stage_tile(self, args, shared.values, 0);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            store_tile(self, args, shared.values, 0);
        });
    }
};
HAZARD(proxies, stored_without_fence, 1, missing_proxy_fence)

// The fence follows the sync: the issuing thread may go on before the other warps have fenced their writes.
template <bool Fixed>
struct fence_after_the_sync : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            stage_tile(self, args, shared.values, 0);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            if constexpr (!Fixed) fence_async(self);
            store_tile(self, args, shared.values, 0);
        });
    }
};
HAZARD(proxies, fence_after_the_sync, 1, missing_proxy_fence)

// The writes are fenced, but the warps do not sync before one of them issues the TMA store.
template <bool Fixed>
struct fence_without_a_sync : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            stage_tile(self, args, shared.values, 0);
            fence_async(self);
            if constexpr (Fixed) self.sync();
            store_tile(self, args, shared.values, 0);
        });
    }
};
HAZARD(proxies, fence_without_a_sync, 1, unsynchronised_scope)

// The role that issues the TMA store fences after its wait, instead of the writers before they arrive.
template <bool Fixed>
struct fence_by_the_issuer : hazard_kernel<8> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 4);
        block.roles(producer("storer",
                             [&](warp& self) {
                                 shared.handed.wait(self, 0);
                                 if constexpr (!Fixed) fence_async(self);
                                 store_tile(self, args, shared.values, 0);
                             }),
                    consumers<1>("writer", [&](warpgroup& self) {
                        stage_tile(self, args, shared.values, 0);
                        if constexpr (Fixed) fence_async(self);
                        shared.handed.arrive(self);
                    }));
    }
};
HAZARD(proxies, fence_by_the_issuer, 1, missing_proxy_fence)

// The fence stands between two writes: it does not cover the second.
template <bool Fixed>
struct fence_before_the_last_write : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 16> left, right;
            load(self, left, args.in.at(0, 0));
            load(self, right, args.in.at(0, 16));
            store(self, shared.values.subtile<64, 16>(0, 0), left);
            if constexpr (!Fixed) fence_async(self);
            store(self, shared.values.subtile<64, 16>(0, 16), right);
            if constexpr (Fixed) fence_async(self);
            self.sync();
            store_tile(self, args, shared.values, 0);
        });
    }
};
HAZARD(proxies, fence_before_the_last_write, 1, missing_proxy_fence)

// A tile that TMA has loaded is scaled in place and stored by TMA without a fence.
template <bool Fixed>
struct scaled_in_place_and_stored : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 4);
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
        });
        block.each_warpgroup([&](warpgroup& self) {
            shared.landing.wait(self, 0);
            map(self, shared.values, [](float x) { return 2 * x; });
            if constexpr (Fixed) fence_async(self);
            self.sync();
            store_tile(self, args, shared.values, 0);
        });
    }
};
HAZARD(proxies, scaled_in_place_and_stored, 1, missing_proxy_fence)

// Ordinary zeros and then a TMA load of the same tile without a fence: the zeros may be written last.
template <bool Fixed>
struct filled_and_loaded_over : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 4);
        fill(block, shared.values, 0.0f);
        if constexpr (Fixed) fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            row_tile values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(proxies, filled_and_loaded_over, 1, missing_proxy_fence)

// A consumer uses its stage as scratch and releases it without a fence; the next TMA load may be overwritten.
template <bool Fixed>
struct scratch_in_a_stage : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 1> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto stage = full.wait();
                            warpgroup_values values;
                            load(self, values, *stage);
                            map(self, values, [](float x) { return x + 1; });
                            store(self, *stage, values);
                            self.sync();
                            store(self, args.out.at(64 * i, 0), *stage);
                            if constexpr (Fixed) fence_async(self);
                        }
                    }));
    }
};
HAZARD(proxies, scratch_in_a_stage, 1, missing_proxy_fence)

// Two warpgroups write one tile and both arrive, but only one of them fences.
template <bool Fixed>
struct one_of_two_writers_fences : hazard_kernel<12> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 8);
        block.roles(producer("storer",
                             [&](warp& self) {
                                 shared.handed.wait(self, 0);
                                 store_tile(self, args, shared.values, 0);
                             }),
                    consumers<2>("writer", [&](warpgroup& self) {
                        warpgroup_tile<float, 64, 16> half;
                        load(self, half, args.in.at(0, 16 * self.index()));
                        store(self, shared.values.subtile<64, 16>(0, 16 * self.index()), half);
                        if (Fixed || self.index() == 0) fence_async(self);
                        shared.handed.arrive(self);
                    }));
    }
};
HAZARD(proxies, one_of_two_writers_fences, 1, missing_proxy_fence)

// A role between the writer and the issuer fences. The writes of the first role are not its own.
template <bool Fixed>
struct fence_by_a_role_in_between : hazard_kernel<12> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 4);
        block.roles(single_warps<1>("storer",
                                    [&](warp& self) {
                                        shared.landing.wait(self, 0);
                                        store_tile(self, args, shared.values, 0);
                                    }),
                    consumers<1>("writer",
                                 [&](warpgroup& self) {
                                     stage_tile(self, args, shared.values, 0);
                                     if constexpr (Fixed) fence_async(self);
                                     shared.handed.arrive(self);
                                 }),
                    single_warps<1>("relay", [&](warp& self) {
                        shared.handed.wait(self, 0);
                        if constexpr (!Fixed) fence_async(self);
                        shared.landing.arrive(self);
                    }));
    }
};
HAZARD(proxies, fence_by_a_role_in_between, 1, missing_proxy_fence)

// The fence stands before the loop: it covers only the writes of the first iteration.
template <bool Fixed>
struct fence_only_in_the_first_iteration : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 3; ++i) {
                stage_tile(self, args, shared.values, i);
                if (Fixed || i == 0) fence_async(self);
                self.sync();
                store_tile(self, args, shared.values, i);
                self.sync();
            }
        });
    }
};
HAZARD(proxies, fence_only_in_the_first_iteration, 1, missing_proxy_fence)

// The warps read a tile, and one of them has TMA refill it without waiting for the others.
template <bool Fixed>
struct refilled_while_others_read : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 4);
        block.each_warp([&](warp& self) {
            const int row = 16 * self.index();
            row_tile values;
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            load(self, values, shared.values.subtile<16>(row));
            store(self, args.out.at(row, 0), values);
            shared.handed.arrive(self);
            if (self.index() == 0) {
                if constexpr (Fixed) shared.handed.wait(self, 0);
                shared.landing_again.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(1, 0), shared.landing_again);
            }
            shared.landing_again.wait(self, 0);
            load(self, values, shared.values.subtile<16>(row));
            store(self, args.out.at(64 + row, 0), values);
        });
    }
};
HAZARD(proxies, refilled_while_others_read, 1, refilled_before_release, read_before_landed)

struct handed_operand {};
using operand_barriers = named_barriers<handed_operand>;

// An operand is handed to another warpgroup's wgmma over a named barrier without a fence.
template <bool Fixed>
struct operand_handed_without_fence : hazard_kernel<8> {
    struct shared_memory {
        operand a;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.roles(consumers<2>([&](warpgroup& self) {
            const named_barrier handed = operand_barriers::of<handed_operand>();
            if (self.index() == 0) {
                warpgroup_tile<bf16, 64, 64> values;
                load(self, values, args.a.at(0, 0));
                store(self, shared.a, values);
                if constexpr (Fixed) fence_async(self);
                handed.arrive(self, 8);
            } else {
                warpgroup_tile<float, 64, 64> sum;
                fill(self, sum, 0.0f);
                handed.sync(self, 8);
                mma_ab(self, sum, shared.a, shared.a);
                store(self, args.out.at(0, 0), sum);
            }
        }));
    }
};
HAZARD(proxies, operand_handed_without_fence, 1, missing_proxy_fence)

// The second operand, copied with ordinary loads by the whole block, is multiplied without a fence.
template <bool Fixed>
struct block_copy_multiplied_without_fence : hazard_kernel<4> {
    struct shared_memory {
        operand a, b;
        transaction_barrier landing;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        load(block, shared.b, args.a.at(64, 0));
        if constexpr (Fixed) fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, operand::bytes);
            load_async(self, shared.a, args.a_tensor.tile(0, 0), shared.landing);
        });
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 64> sum;
            fill(self, sum, 0.0f);
            shared.landing.wait(self, 0);
            mma_ab(self, sum, shared.a, shared.b);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(proxies, block_copy_multiplied_without_fence, 1, missing_proxy_fence)

}  // namespace
