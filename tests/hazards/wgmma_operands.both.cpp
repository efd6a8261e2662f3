// The operands of asynchronous products in shared memory: overwritten or released too early, read before they landed.
#include "hazards/corpus.hpp"

#include <utility>

using namespace imbrex_hazards;

namespace {

using accumulator = warpgroup_tile<float, 64, 64>;
using weights = warpgroup_tile<bf16, 64, 64>;

struct two_operands {
    operand a, b;
    transaction_barrier landing, landing_of_a;
};

template <class Block>
IMBREX_KERNEL void load_operands(Block& block, const corpus_arguments& args, two_operands& shared) {
    shared.landing.init(block, 1);
    shared.landing_of_a.init(block, 1);
    fence_barriers(block);
    block.sync();
    block.each_warp([&](warp& self) {
        if (self.index() != 0) return;
        shared.landing.expect(self, operand::bytes);
        load_async(self, shared.b, args.a_tensor.tile(1, 0), shared.landing);
        shared.landing_of_a.expect(self, operand::bytes);
        load_async(self, shared.a, args.a_tensor.tile(0, 0), shared.landing_of_a);
    });
}

// The operand is overwritten while the product reads it.
template <bool Fixed>
struct operand_overwritten_before_the_wait : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            weights next;
            fill(self, sum, 0.0f);
            load(self, next, args.a.at(128, 0));
            shared.landing.wait(self, 0);
            shared.landing_of_a.wait(self, 0);
            mma_ab_async(self, sum, shared.a, shared.b);
            if constexpr (Fixed) wait_mma(self, sum);
            self.sync();
            store(self, shared.b, next);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, operand_overwritten_before_the_wait, 1, overwritten_in_flight)

// The product is waited for, but the warps do not sync: another warp may still multiply with the operand.
template <bool Fixed>
struct operand_overwritten_without_a_sync : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            weights next;
            fill(self, sum, 0.0f);
            load(self, next, args.a.at(128, 0));
            shared.landing.wait(self, 0);
            shared.landing_of_a.wait(self, 0);
            mma_ab(self, sum, shared.a, shared.b);
            if constexpr (Fixed) self.sync();
            store(self, shared.b, next);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, operand_overwritten_without_a_sync, 1, unsynchronised_scope)

// After a second product with the same operand, a wait that leaves one is not enough to overwrite it.
template <bool Fixed>
struct operand_of_two_products_overwritten : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            weights next;
            fill(self, sum, 0.0f);
            load(self, next, args.a.at(128, 0));
            shared.landing.wait(self, 0);
            shared.landing_of_a.wait(self, 0);
            mma_ab_async(self, sum, shared.a, shared.b);
            mma_ab_async(self, sum, shared.b, shared.a);
            wait_mma<Fixed ? 0 : 1>(self);
            self.sync();
            store(self, shared.a, next);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, operand_of_two_products_overwritten, 1, overwritten_in_flight)

// The wait for the left operand follows the product.
template <bool Fixed>
struct late_wait_for_the_left_operand : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            shared.landing.wait(self, 0);
            if constexpr (Fixed) shared.landing_of_a.wait(self, 0);
            mma_ab_async(self, sum, shared.a, shared.b);
            if constexpr (!Fixed) shared.landing_of_a.wait(self, 0);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, late_wait_for_the_left_operand, 1, read_before_landed)

struct one_operand {
    operand a;
};

// The last sixteen rows of an operand are never written.
template <bool Fixed>
struct operand_rows_never_written : hazard_kernel<4> {
    using shared_memory = one_operand;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if (!Fixed && self.index() == 3) return;
            warp_tile<bf16, 16, 64> values;
            load(self, values, args.a.at(16 * self.index(), 0));
            store(self, shared.a.subtile<16>(16 * self.index()), values);
            fence_async(self);
        });
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            mma_ab(self, sum, shared.a, shared.a, accumulation::replace);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, operand_rows_never_written, 1, uninitialised_read)

template <int Stages>
struct ring_of_operands {
    pipeline<operand, Stages> ring;
};

// Initialises the ring, loads `steps` operands into it and runs the body of the consumer.
template <class Block, int Stages, class Body>
IMBREX_KERNEL void consume(Block& block, const corpus_arguments& args, ring_of_operands<Stages>& shared, int steps,
                           const Body& body) {
    shared.ring.init(block, 4);
    fence_barriers(block);
    block.sync();
    block.roles(producer([&](warp& self) {
                    auto filling = shared.ring.producer(self);
                    for (int i = 0; i < steps; ++i) {
                        auto slot = filling.acquire();
                        load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                    }
                }),
                consumers<1>(body));
}

// The stage is released with its product in flight.
template <bool Fixed>
struct stage_released_in_flight : hazard_kernel<8> {
    using shared_memory = ring_of_operands<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        consume(block, args, shared, 6, [&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            auto full = shared.ring.consumer(self);
            for (int i = 0; i < 6; ++i) {
                auto stage = full.wait();
                mma_ab_async(self, sum, *stage, *stage);
                if constexpr (Fixed) wait_mma(self);
                stage.release();
            }
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, stage_released_in_flight, 1, overwritten_in_flight, refilled_before_release)

// The release is one product late, but the wait leaves two.
template <bool Fixed>
struct release_one_late_and_wait_leaves_two : hazard_kernel<8> {
    using shared_memory = ring_of_operands<3>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        consume(block, args, shared, 8, [&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            auto full = shared.ring.consumer(self);
            auto held = full.no_stage();
            for (int i = 0; i < 8; ++i) {
                auto stage = full.wait();
                mma_ab_async(self, sum, *stage, *stage);
                wait_mma<Fixed ? 1 : 2>(self);
                held = std::move(stage);
            }
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, release_one_late_and_wait_leaves_two, 1, overwritten_in_flight, refilled_before_release)

// Both operands come from stages of a ring, and the first is released as soon as the product has been issued.
template <bool Fixed>
struct first_of_two_stages_released : hazard_kernel<8> {
    using shared_memory = ring_of_operands<3>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        consume(block, args, shared, 8, [&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            auto full = shared.ring.consumer(self);
            for (int i = 0; i < 4; ++i) {
                auto left = full.wait();
                auto right = full.wait();
                mma_ab_async(self, sum, *left, *right);
                if constexpr (!Fixed) left.release();
                wait_mma(self, sum);
            }
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, first_of_two_stages_released, 1, overwritten_in_flight, refilled_before_release)

struct operand_free {};
using free_barriers = named_barriers<operand_free>;

// A warpgroup tells the other that the operand is free before its product has been waited for. The other waits for its
// own products, of which there are none.
template <bool Fixed>
struct wait_by_the_other_group : hazard_kernel<8> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.roles(consumers<2>([&](warpgroup& self) {
            const named_barrier free = free_barriers::of<operand_free>();
            shared.landing.wait(self, 0);
            shared.landing_of_a.wait(self, 0);
            if (self.index() == 0) {
                accumulator sum;
                fill(self, sum, 0.0f);
                mma_ab_async(self, sum, shared.a, shared.b);
                if constexpr (Fixed) wait_mma(self, sum);
                free.arrive(self, 8);
                if constexpr (!Fixed) wait_mma(self, sum);
                store(self, args.out.at(0, 0), sum);
            } else {
                weights next;
                load(self, next, args.a.at(128, 0));
                free.sync(self, 8);
                wait_mma(self);
                store(self, shared.b, next);
            }
        }));
    }
};
HAZARD(wgmma_registers, wait_by_the_other_group, 1, overwritten_in_flight)

}  // namespace
