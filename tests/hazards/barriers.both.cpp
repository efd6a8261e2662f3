// Transaction barriers: arrivals, phases, bytes, initialisation.
#include "corpus.hpp"

using namespace imbrex_hazards;

namespace {

struct one_copy {
    tile values;
    transaction_barrier landing;
};

// The wait for the copy is missing.
template <bool Fixed>
struct load_without_wait : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            if constexpr (Fixed) shared.landing.wait(self, 0);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
        });
    }
};
HAZARD(barriers, load_without_wait, 1, read_before_landed, uninitialised_read)

// The consumer waits for phase 1 when phase 0 is meant.
template <bool Fixed>
struct wait_for_the_next_phase : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, Fixed ? 0 : 1);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(barriers, wait_for_the_next_phase, 1, wrong_phase, read_before_landed)

}  // namespace
