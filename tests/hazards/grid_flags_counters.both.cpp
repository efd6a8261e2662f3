// Counters of a grid: tickets, look-back, grid barriers and the last block to arrive, and which blocks are certain to
// run.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;

struct at_least {
    int count;
    IMBREX_FN bool operator()(int value) const { return value >= count; }
};

IMBREX_KERNEL void copy_rows(const warp& self, global_tile<float> to, global_tile<const float> from) {
    warp_rows values;
    load(self, values, from);
    store(self, to, values);
}

// A grid barrier of one warp per block.
IMBREX_KERNEL void meet(const warp& self, int* counter, int count) {
    atomic_fetch_add<memory_order::release>(self, counter, 1);
    wait_for_value<memory_order::acquire>(self, counter, at_least{count});
}

// The sum of one row per block, by the block that calls it.
IMBREX_KERNEL void add_up(const warp& self, const corpus_arguments& args, int blocks) {
    warp_rows sum, values;
    fill(self, sum, 0.0f);
    for (int i = 0; i < blocks; ++i) {
        load(self, values, args.work.at(16 * i, 0));
        combine(self, sum, values, functional::add{});
    }
    store(self, args.out.at(0, 0), sum);
}

// Each block adds its value to the prefix of its predecessor and publishes the sum.
template <bool Ticket, memory_order Publish, memory_order Observe>
struct look_back : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = Ticket ? atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1) : block.index().x;
            int* const flags = args.flags + 1;
            float prefix = get(self, args.in.at(own, 0).pointer);
            if (own > 0) {
                wait_for_value<Observe>(self, flags + own - 1, at_least{1});
                prefix += get(self, args.work.pointer + own - 1);
            }
            put(self, args.work.pointer + own, prefix);
            atomic_store<Publish>(self, flags + own, 1);
            warp_rows values;
            fill(self, values, prefix);
            store(self, args.out.at(16 * own, 0), values);
        });
    }
};

// The status of the predecessor is stored relaxed and does not publish its prefix.
template <bool Fixed>
struct look_back_status_stored_relaxed
    : look_back<true, Fixed ? memory_order::release : memory_order::relaxed, memory_order::acquire> {};
HAZARD(grid_flags, look_back_status_stored_relaxed, 4, relaxed_publication, race)

// The status of the predecessor is read relaxed, and its prefix with it.
template <bool Fixed>
struct look_back_status_read_relaxed
    : look_back<true, memory_order::release, Fixed ? memory_order::acquire : memory_order::relaxed> {};
HAZARD(grid_flags, look_back_status_read_relaxed, 4, relaxed_publication, race)

// Blocks look back by block index. Blocks need not start in this order: the predecessor may not be resident.
template <bool Fixed>
struct look_back_without_a_ticket : look_back<Fixed, memory_order::release, memory_order::acquire> {};
HAZARD(grid_flags, look_back_without_a_ticket, 4, not_resident)

// A block waits for the next one, which starts after it; the grid is not cooperative.
template <bool Fixed>
struct waits_for_a_higher_block : cooperative_kernel<1, Fixed> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            atomic_store<memory_order::release>(self, args.flags + own, 1);
            if (own + 1 == block.count().x) return;
            wait_for_value<memory_order::acquire>(self, args.flags + own + 1, at_least{1});
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * own + 16, 0));
        });
    }
};
HAZARD(grid_flags, waits_for_a_higher_block, 3, not_resident)

// A ticket holder waits for the ticket after its own.
template <bool Fixed>
struct waits_for_a_later_ticket : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
            int* const flags = args.flags + 1;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            atomic_store<memory_order::release>(self, flags + own, 1);
            const int other = own + (Fixed ? -1 : 1);
            if (other < 0 || other == block.count().x) return;
            wait_for_value<memory_order::acquire>(self, flags + other, at_least{1});
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
        });
    }
};
HAZARD(grid_flags, waits_for_a_later_ticket, 3, not_resident)

// The loop over tickets ends at one ticket instead of at all from there on: one block draws it, the others count on
// forever.
template <bool Fixed>
struct loop_ends_at_one_ticket : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            constexpr int last = 6;
            for (;;) {
                const int ticket = atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
                if (Fixed ? ticket >= last : ticket == last) return;
                if (ticket < last) copy_rows(self, args.out.at(16 * ticket, 0), args.in.at(16 * ticket, 0));
            }
        });
    }
};
HAZARD_THAT_HANGS(grid_flags, loop_ends_at_one_ticket, 3, deadlock)

// All blocks of a grid meet, but the launch is not cooperative.
template <bool Fixed>
struct grid_barrier_without_cooperative_launch : cooperative_kernel<1, Fixed> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x, other = block.count().x - 1 - own;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            meet(self, args.flags, block.count().x);
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
        });
    }
};
HAZARD(grid_flags, grid_barrier_without_cooperative_launch, 4, not_resident)

// The grid barrier opens when one block is still missing.
template <bool Fixed>
struct grid_barrier_one_block_short : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x, other = block.count().x - 1 - own;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            meet(self, args.flags, block.count().x - (Fixed ? 0 : 1));
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
        });
    }
};
HAZARD(grid_flags, grid_barrier_one_block_short, 4, race, uninitialised_read)

// The grid barrier counts warps and waits for more than arrive.
template <bool Fixed>
struct grid_barrier_expects_too_many : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x, other = block.count().x - 1 - own;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            meet(self, args.flags, (Fixed ? 1 : 4) * block.count().x);
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
        });
    }
};
HAZARD_THAT_HANGS(grid_flags, grid_barrier_expects_too_many, 4, deadlock)

// The second grid barrier waits for a count that the first has already reached.
template <bool Fixed>
struct grid_barrier_counter_not_reset : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int blocks = block.count().x, own = block.index().x, other = blocks - 1 - own;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            meet(self, args.flags, blocks);
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
            meet(self, args.flags, (Fixed ? 2 : 1) * blocks);
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(256 + 16 * own, 0));
        });
    }
};
HAZARD(grid_flags, grid_barrier_counter_not_reset, 4, race)

// The blocks arrive at the grid barrier relaxed.
template <bool Fixed>
struct grid_barrier_arrival_relaxed : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr auto order = Fixed ? memory_order::release : memory_order::relaxed;
        block.each_warp([&](warp& self) {
            const int own = block.index().x, other = block.count().x - 1 - own;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            atomic_fetch_add<order>(self, args.flags, 1);
            wait_for_value<memory_order::acquire>(self, args.flags, at_least{block.count().x});
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
        });
    }
};
HAZARD(grid_flags, grid_barrier_arrival_relaxed, 4, relaxed_publication, race)

// Between the rows of all warps and the arrival of the first one, and after it, a block sync is needed.
template <bool Before, bool After>
struct grid_barrier_of_whole_blocks : cooperative_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        const int own = 64 * block.index().x, other = 64 - own;
        block.each_warp([&](warp& self) {
            copy_rows(self, args.work.at(own + 16 * self.index(), 0), args.in.at(own + 16 * self.index(), 0));
        });
        if constexpr (Before) block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) meet(self, args.flags, block.count().x);
        });
        if constexpr (After) block.sync();
        block.each_warp([&](warp& self) {
            copy_rows(self, args.out.at(own + 16 * self.index(), 0), args.work.at(other + 16 * self.index(), 0));
        });
    }
};

// The block sync before the grid barrier is missing.
template <bool Fixed>
struct grid_barrier_without_sync_before : grid_barrier_of_whole_blocks<Fixed, true> {};
HAZARD(grid_flags, grid_barrier_without_sync_before, 2, race, uninitialised_read)

// The block sync after the grid barrier is missing.
template <bool Fixed>
struct grid_barrier_without_sync_after : grid_barrier_of_whole_blocks<true, Fixed> {};
HAZARD(grid_flags, grid_barrier_without_sync_after, 2, race, uninitialised_read)

// The counter of arrivals counts warps, but the number of blocks is passed.
template <bool Fixed>
struct last_to_arrive_counts_blocks : hazard_kernel<2> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = 16 * (2 * block.index().x + self.index());
            copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
            const int warps = 2 * block.count().x;
            if (is_last_to_arrive(self, args.flags, Fixed ? warps : block.count().x)) add_up(self, args, warps);
        });
    }
};
HAZARD(grid_flags, last_to_arrive_counts_blocks, 2, race, uninitialised_read)

// The warp that arrives for its block does so without a block sync.
template <bool Fixed>
struct last_block_arrival_without_a_block_sync : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = 64 * block.index().x + 16 * self.index();
            copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
        });
        if constexpr (Fixed) block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            if (is_last_to_arrive(self, args.flags, block.count().x)) add_up(self, args, 4 * block.count().x);
        });
    }
};
HAZARD(grid_flags, last_block_arrival_without_a_block_sync, 2, race, uninitialised_read)

// The last block to arrive leaves the counter as it is, so in the next launch the first to arrive takes itself for the
// last.
template <bool Fixed>
struct arrival_counter_not_reset_for_the_next_launch {
    struct first : hazard_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x, blocks = block.count().x;
                copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
                if (atomic_fetch_add<memory_order::acq_rel>(self, args.flags, 1) < blocks - 1) return;
                add_up(self, args, blocks);
                if constexpr (Fixed) atomic_store<memory_order::relaxed>(self, args.flags, 0);
            });
        }
    };
    using second = first;
};
HAZARD_OF_TWO_KERNELS(grid_flags, arrival_counter_not_reset_for_the_next_launch, 4, race)

// A block that leaves early does not arrive at the grid barrier.
template <bool Fixed>
struct early_exit_before_the_grid_barrier : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x;
            if (!Fixed && own == 3) return;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            meet(self, args.flags, block.count().x);
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * (own ^ 1), 0));
        });
    }
};
HAZARD_THAT_HANGS(grid_flags, early_exit_before_the_grid_barrier, 4, deadlock)

}  // namespace
