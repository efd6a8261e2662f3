// Initialisation of transaction barriers, and a hand-over by named barriers without a way back.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;
using group_rows = warpgroup_tile<float, 64, 32>;

struct one_exchange {
    tile values;
    transaction_barrier written;
};

// Each of four warps fills its 16 rows, arrives, waits, and writes the rows of the next warp.
IMBREX_KERNEL void exchange_rows(const warp& self, const corpus_arguments& args, tile& values,
                                 transaction_barrier& written) {
    warp_rows own, next;
    load(self, own, args.in.at(16 * self.index(), 0));
    store(self, values.subtile<16>(16 * self.index()), own);
    written.arrive(self);
    written.wait(self, 0);
    load(self, next, values.subtile<16>(16 * ((self.index() + 1) % 4)));
    store(self, args.out.at(16 * self.index(), 0), next);
}

// The fence after the initialisation of the barrier is missing.
template <bool Fixed>
struct init_without_its_fence : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        if constexpr (Fixed) fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, shared.written); });
    }
};
HAZARD(barriers, init_without_its_fence, 1, barrier_not_initialised)

// The fence of the initialisation follows the sync.
template <bool Fixed>
struct init_fence_after_the_sync : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        if constexpr (Fixed) fence_barriers(block);
        block.sync();
        if constexpr (!Fixed) fence_barriers(block);
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, shared.written); });
    }
};
HAZARD(barriers, init_fence_after_the_sync, 1, barrier_not_initialised)

// No sync separates the initialisation of the barrier from its use.
template <bool Fixed>
struct init_without_a_sync : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        fence_barriers(block);
        if constexpr (Fixed) block.sync();
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, shared.written); });
    }
};
HAZARD_THAT_HANGS(barriers, init_without_a_sync, 1, barrier_not_initialised)

// The loop initialises one of the two barriers.
template <bool Fixed>
struct init_of_the_last_barrier_forgotten : hazard_kernel<4> {
    struct shared_memory {
        tile values[2];
        transaction_barrier landing[2];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int i = 0; i < (Fixed ? 2 : 1); ++i) shared.landing[i].init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 2; ++i) {
                if (self.index() == 0) {
                    shared.landing[i].expect(self, tile::bytes);
                    load_async(self, shared.values[i], args.in_tensor.tile(i, 0), shared.landing[i]);
                }
                shared.landing[i].wait(self, 0);
                warp_rows values;
                load(self, values, shared.values[i].template subtile<16>(16 * self.index()));
                store(self, args.out.at(tile::rows * i + 16 * self.index(), 0), values);
            }
        });
    }
};
HAZARD_THAT_HANGS(barriers, init_of_the_last_barrier_forgotten, 1, barrier_not_initialised)

// Every warp initialises the barrier; the last one resets the arrivals of the first.
template <bool Fixed>
struct every_warp_initialises_the_barrier : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        if constexpr (Fixed) {
            shared.written.init(block, 4);
            fence_barriers(block);
            block.sync();
        }
        block.each_warp([&](warp& self) {
            if constexpr (!Fixed) {
                shared.written.init(self, 4);
                fence_barriers(self);
            }
            exchange_rows(self, args, shared.values, shared.written);
        });
    }
};
HAZARD_THAT_HANGS(barriers, every_warp_initialises_the_barrier, 1, barrier_not_initialised, race)

// One thread initialises the barrier twice, for the same count: mbarrier.init on a valid mbarrier is undefined.
template <bool Fixed>
struct barrier_initialised_twice : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        if constexpr (!Fixed) shared.written.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, shared.written); });
    }
};
HAZARD(barriers, barrier_initialised_twice, 1, barrier_not_initialised)

// The barrier is invalidated after its first use and used again.
template <bool Fixed>
struct barrier_used_after_invalidate : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, shared.written); });
        block.sync();
        shared.written.invalidate(block);
        block.sync();
        if constexpr (Fixed) {
            shared.written.init(block, 4);
            fence_barriers(block);
            block.sync();
        }
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, shared.written); });
    }
};
HAZARD_THAT_HANGS(barriers, barrier_used_after_invalidate, 1, barrier_not_initialised)

// The barrier is initialised for its second use before all warps have waited in the first.
template <bool Fixed>
struct initialised_again_before_all_have_waited : hazard_kernel<4> {
    struct shared_memory {
        tile values;
        transaction_barrier written;
        transaction_barrier left;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        shared.left.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            exchange_rows(self, args, shared.values, shared.written);
            shared.left.arrive(self);
            if (self.index() == 3) {
                if constexpr (Fixed) shared.left.wait(self, 0);
                shared.written.invalidate(self);
                shared.written.init(self, 4);
                fence_barriers(self);
            }
        });
        block.sync();
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, shared.written); });
    }
};
HAZARD_THAT_HANGS(barriers, initialised_again_before_all_have_waited, 1, barrier_not_initialised, race)

// A tile in the bytes of the barrier is written while the barrier is still used.
template <bool Fixed>
struct barrier_overwritten_by_data : hazard_kernel<4> {
    struct shared_memory {
        overlay<tile, transaction_barrier> both;
        tile values;
        tile spare;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        auto& written = shared.both.template as<transaction_barrier>();
        written.init(block, 4);
        fence_barriers(block);
        block.sync();
        fill(block, Fixed ? shared.spare : shared.both.template as<tile>(), 1.0f);
        block.sync();
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, written); });
    }
};
HAZARD_THAT_HANGS(barriers, barrier_overwritten_by_data, 1, barrier_not_initialised, race)

// A barrier is initialised in bytes that a copy is still writing.
template <bool Fixed>
struct barrier_in_the_bytes_of_a_copy : hazard_kernel<4> {
    struct shared_memory {
        overlay<tile, transaction_barrier> both;
        tile values;
        transaction_barrier landing;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        auto& written = shared.both.template as<transaction_barrier>();
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.both.template as<tile>(), args.in_tensor.tile(1, 0), shared.landing);
            if constexpr (Fixed) shared.landing.wait(self, 0);
            written.init(self, 4);
            fence_barriers(self);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
        });
        block.sync();
        block.each_warp([&](warp& self) { exchange_rows(self, args, shared.values, written); });
    }
};
HAZARD_THAT_HANGS(barriers, barrier_in_the_bytes_of_a_copy, 1, overwritten_in_flight, barrier_not_initialised, race)

struct full {
    static constexpr int count = 2;
};
struct empty {};
using names = named_barriers<full, empty>;

// A warpgroup fills a tile from tile number `number` of the input, or writes it to the output.
IMBREX_KERNEL void fill_tile(const warpgroup& self, const corpus_arguments& args, tile& to, int number) {
    group_rows values;
    load(self, values, args.in.at(tile::rows * number, 0));
    store(self, to, values);
}
IMBREX_KERNEL void write_tile(const warpgroup& self, const corpus_arguments& args, const tile& from, int number) {
    group_rows values;
    load(self, values, from);
    store(self, args.out.at(tile::rows * number, 0), values);
}

// The named barrier says when the tile is full, but nothing says when it may be overwritten.
template <bool Fixed>
struct named_hand_over_in_one_direction : hazard_kernel<8> {
    struct shared_memory {
        tile values;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                if (self.index() == 0) {
                    if (Fixed && i > 0) names::of<empty>().sync(self, 8);
                    fill_tile(self, args, shared.values, i);
                    names::of<full>(i).arrive(self, 8);
                } else {
                    names::of<full>(i).sync(self, 8);
                    write_tile(self, args, shared.values, i);
                    if (Fixed && i == 0) names::of<empty>().arrive(self, 8);
                }
            }
        });
    }
};
HAZARD(barriers, named_hand_over_in_one_direction, 1, race, refilled_before_release)

}  // namespace
