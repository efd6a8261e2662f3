// The registers of asynchronous products: accumulators and operands that are used before wait_mma, and accumulators
// without a value.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using accumulator = warpgroup_tile<float, 64, 64>;
using weights = warpgroup_tile<bf16, 64, 64>;

struct two_operands {
    operand a, b;
    transaction_barrier landing;
};

// Loads both operands; afterwards the whole block may use them.
template <class Block>
IMBREX_KERNEL void load_operands(Block& block, const corpus_arguments& args, two_operands& shared) {
    shared.landing.init(block, 1);
    fence_barriers(block);
    block.sync();
    block.each_warp([&](warp& self) {
        if (self.index() == 0) {
            shared.landing.expect(self, 2 * operand::bytes);
            load_async(self, shared.a, args.a_tensor.tile(0, 0), shared.landing);
            load_async(self, shared.b, args.a_tensor.tile(1, 0), shared.landing);
        }
        shared.landing.wait(self, 0);
    });
    block.sync();
}

// The accumulator is stored before the product has been waited for.
template <bool Fixed>
struct result_stored_before_the_wait : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            mma_ab_async(self, sum, shared.a, shared.b);
            if constexpr (Fixed) wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
            if constexpr (!Fixed) wait_mma(self, sum);
        });
    }
};
HAZARD(wgmma_registers, result_stored_before_the_wait, 1, accumulator_in_flight)

// The wait leaves one product, which is the one whose result is stored.
template <bool Fixed>
struct wait_leaves_the_product_that_is_read : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator first, second;
            fill(self, first, 0.0f);
            fill(self, second, 0.0f);
            mma_ab_async(self, first, shared.a, shared.b);
            mma_ab_async(self, second, shared.b, shared.a);
            wait_mma<Fixed ? 0 : 1>(self, second);
            store(self, args.out.at(0, 0), second);
            wait_mma(self, first);
            store(self, args.out.at(64, 0), first);
        });
    }
};
HAZARD(wgmma_registers, wait_leaves_the_product_that_is_read, 1, accumulator_in_flight)

// The loop leaves one product in flight, and the wait for it after the loop is missing.
template <bool Fixed>
struct last_product_not_waited_for : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            for (int i = 0; i < 4; ++i) {
                mma_ab_async(self, sum, shared.a, shared.b);
                wait_mma<1>(self);
            }
            if constexpr (Fixed) wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
            if constexpr (!Fixed) wait_mma(self, sum);
        });
    }
};
HAZARD(wgmma_registers, last_product_not_waited_for, 1, accumulator_in_flight)

// The operand in registers is loaded again while the product reads it.
template <bool Fixed>
struct register_operand_reloaded : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            weights left;
            fill(self, sum, 0.0f);
            load(self, left, shared.a);
            mma_ab_async(self, sum, left, shared.b);
            if constexpr (Fixed) wait_mma(self, sum);
            load(self, left, shared.b);
            mma_ab_async(self, sum, left, shared.a);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, register_operand_reloaded, 1, accumulator_in_flight)

// The operand in registers is converted from new scores while the product with the old ones reads it.
template <bool Fixed>
struct register_operand_converted_into : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator scores, sum;
            weights left;
            fill(self, sum, 0.0f);
            for (int i = 0; i < 3; ++i) {
                load(self, scores, args.in.at(64 * i, 0));
                if constexpr (Fixed) wait_mma(self, sum);
                convert(self, left, scores);
                mma_ab_async(self, sum, left, shared.b);
            }
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, register_operand_converted_into, 1, accumulator_in_flight)

// The operand in registers goes out of scope, and its registers are reused, while the product reads it.
template <bool Fixed>
struct register_operand_goes_out_of_scope : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            {
                weights left;
                load(self, left, shared.a);
                mma_ab_async(self, sum, left, shared.b);
                if constexpr (Fixed) wait_mma(self, sum);
            }
            accumulator others;
            load(self, others, args.in.at(0, 0));
            wait_mma(self, sum);
            combine(self, sum, others, functional::add{});
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, register_operand_goes_out_of_scope, 1, accumulator_in_flight)

// The accumulator of the first product has no value.
template <bool Fixed>
struct accumulator_without_a_value : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            if constexpr (Fixed) fill(self, sum, 0.0f);
            mma_ab(self, sum, shared.a, shared.b);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, accumulator_without_a_value, 1, uninitialised_read)

// The second step replaces the accumulator instead of the first, which adds to uninitialised registers.
template <bool Fixed>
struct wrong_step_replaces : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            for (int i = 0; i < 3; ++i) {
                mma_ab_async(self, sum, shared.a, shared.b,
                             i == (Fixed ? 0 : 1) ? accumulation::replace : accumulation::add);
            }
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, wrong_step_replaces, 1, uninitialised_read)

// The accumulator is rescaled between two products without a wait for the first.
template <bool Fixed>
struct rescaled_between_products : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            mma_ab_async(self, sum, shared.a, shared.b);
            if constexpr (Fixed) wait_mma(self, sum);
            map(self, sum, [](float x) { return 0.5f * x; });
            mma_ab_async(self, sum, shared.b, shared.a);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, rescaled_between_products, 1, accumulator_in_flight)

// The scores are converted to the operand of the second product before the first has been waited for.
template <bool Fixed>
struct scores_converted_in_flight : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator scores, sum;
            weights left;
            fill(self, sum, 0.0f);
            mma_abt_async(self, scores, shared.a, shared.b, accumulation::replace);
            if constexpr (Fixed) wait_mma(self, scores);
            convert(self, left, scores);
            mma_ab_async(self, sum, left, shared.b);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, scores_converted_in_flight, 1, accumulator_in_flight)

// The row maxima of scores are reduced after a wait that leaves the product of these scores.
template <bool Fixed>
struct rows_reduced_in_flight : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator scores, sum;
            row_values_of<accumulator> most;
            mma_ab_async(self, sum, shared.b, shared.a, accumulation::replace);
            mma_abt_async(self, scores, shared.a, shared.b, accumulation::replace);
            wait_mma<Fixed ? 0 : 1>(self, scores);
            reduce_rows(self, most, scores, functional::maximum{}, -1e30f);
            wait_mma(self, sum);
            combine_with_rows(self, sum, most, functional::multiply{});
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(wgmma_registers, rows_reduced_in_flight, 1, accumulator_in_flight)

// The accumulator is copied to another tile while its product is in flight.
template <bool Fixed>
struct accumulator_copied_before_the_wait : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator current, previous;
            mma_ab_async(self, current, shared.a, shared.b, accumulation::replace);
            if constexpr (Fixed) wait_mma(self, current);
            previous = current;
            if constexpr (!Fixed) wait_mma(self, current);
            mma_ab(self, current, shared.b, shared.a, accumulation::replace);
            store(self, args.out.at(0, 0), previous);
            store(self, args.out.at(64, 0), current);
        });
    }
};
HAZARD(wgmma_registers, accumulator_copied_before_the_wait, 1, accumulator_in_flight)

// Of two accumulators, the one whose product is still in flight is filled for the next tile.
template <bool Fixed>
struct wrong_accumulator_filled : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator one, other;
            fill(self, one, 0.0f);
            fill(self, other, 0.0f);
            mma_ab_async(self, one, shared.a, shared.b);
            mma_ab_async(self, other, shared.b, shared.a);
            wait_mma<1>(self, one);
            store(self, args.out.at(0, 0), one);
            fill(self, Fixed ? one : other, 1.0f);
            wait_mma(self, other);
            store(self, args.out.at(64, 0), other);
        });
    }
};
HAZARD(wgmma_registers, wrong_accumulator_filled, 1, accumulator_in_flight)

}  // namespace
