// Atomic operations: mixed with ordinary accesses, of too small a scope, locks.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;

struct is_zero {
    IMBREX_FN bool operator()(int value) const { return value == 0; }
};

// Takes a lock that any running warp may hold.
template <memory_order Order = memory_order::acquire>
IMBREX_KERNEL void take(const warp& self, int* lock) {
    do {
        wait_for_value<memory_order::relaxed>(self, lock, is_zero{});
    } while (atomic_compare_exchange<Order>(self, lock, 0, 1) != 0);
}
template <memory_order Order = memory_order::release>
IMBREX_KERNEL void give(const warp& self, int* lock) {
    atomic_store<Order>(self, lock, 0);
}

// Adds rows of `in` to the first rows of `out`, not atomically.
IMBREX_KERNEL void add_rows(const warp& self, const corpus_arguments& args, int row) {
    warp_rows sum, values;
    load(self, values, args.in.at(row, 0));
    load(self, sum, args.out.at(0, 0));
    combine(self, sum, values, functional::add{});
    store(self, args.out.at(0, 0), sum);
}

// Block 0 clears the sum by ordinary stores while other blocks add to it.
template <bool Fixed>
struct sum_cleared_while_others_add : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            fill(self, values, 0.0f);
            if (!Fixed && block.index().x == 0) store(self, args.out.at(0, 0), values);
            load(self, values, args.in.at(16 * block.index().x, 0));
            atomic_add(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(atomics, sum_cleared_while_others_add, 4, race)

// A block reads the sum by an ordinary load while others may still add to it.
template <bool Fixed>
struct sum_read_while_others_add : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            atomic_add(self, args.out.at(0, 0), values);
            const bool last = is_last_to_arrive(self, args.flags, block.count().x);
            if (Fixed ? last : block.index().x == 0) {
                load(self, values, args.out.at(0, 0));
                store(self, args.out.at(16, 0), values);
            }
        });
    }
};
HAZARD(atomics, sum_read_while_others_add, 4, race)

// One role adds atomically, the other by an ordinary load and store.
template <bool Fixed>
struct atomic_and_ordinary_sums_mixed : hazard_kernel<8> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.roles(single_warps<1>("atomic",
                                    [&](warp& self) {
                                        warp_rows values;
                                        load(self, values, args.in.at(0, 0));
                                        atomic_add(self, args.out.at(0, 0), values);
                                    }),
                    single_warps<1>("ordinary", [&](warp& self) {
                        if constexpr (Fixed) {
                            warp_rows values;
                            load(self, values, args.in.at(16, 0));
                            atomic_add(self, args.out.at(0, 0), values);
                        } else {
                            add_rows(self, args, 16);
                        }
                    }));
    }
};
HAZARD(atomics, atomic_and_ordinary_sums_mixed, 1, race)

// The counter is incremented by a load and a store.
template <bool Fixed>
struct counter_incremented_by_load_and_store : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            int number = 0;
            if constexpr (Fixed) {
                number = atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
            } else {
                number = get(self, args.flags);
                put(self, args.flags, number + 1);
            }
            warp_rows values;
            fill(self, values, static_cast<float>(number + 1));
            store(self, args.out.at(16 * number, 0), values);
        });
    }
};
HAZARD(atomics, counter_incremented_by_load_and_store, 4, race)

// Atomic additions of block scope are not atomic between blocks: two blocks may draw the same number.
template <bool Fixed>
struct numbers_drawn_at_block_scope : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr auto among = Fixed ? memory_scope::device : memory_scope::block;
        block.each_warp([&](warp& self) {
            const int number = atomic_fetch_add<memory_order::relaxed, among>(self, args.flags, 1);
            warp_rows values;
            fill(self, values, static_cast<float>(number + 1));
            store(self, args.out.at(16 * number, 0), values);
        });
    }
};
HAZARD(atomics, numbers_drawn_at_block_scope, 4, race, relaxed_publication)

// The last block to arrive is found by a relaxed addition: it does not see the rows of the others.
template <bool Fixed>
struct last_block_found_by_a_relaxed_addition : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr auto order = Fixed ? memory_order::acq_rel : memory_order::relaxed;
        block.each_warp([&](warp& self) {
            warp_rows sum, values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            store(self, args.work.at(16 * block.index().x, 0), values);
            if (atomic_fetch_add<order>(self, args.flags, 1) != block.count().x - 1) return;
            fill(self, sum, 0.0f);
            for (int i = 0; i < block.count().x; ++i) {
                load(self, values, args.work.at(16 * i, 0));
                combine(self, sum, values, functional::add{});
            }
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(atomics, last_block_found_by_a_relaxed_addition, 4, relaxed_publication, race)

// The arrival releases the rows of this block but does not acquire those of the others.
template <bool Fixed>
struct last_block_does_not_acquire : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr auto order = Fixed ? memory_order::acq_rel : memory_order::release;
        block.each_warp([&](warp& self) {
            warp_rows sum, values;
            load(self, sum, args.in.at(16 * block.index().x, 0));
            store(self, args.work.at(16 * block.index().x, 0), sum);
            if (atomic_fetch_add<order>(self, args.flags, 1) != 1) return;
            load(self, values, args.work.at(16 * (1 - block.index().x), 0));
            combine(self, sum, values, functional::add{});
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(atomics, last_block_does_not_acquire, 2, relaxed_publication, race)

// The first of two blocks leaves its rows for the second by a relaxed exchange.
template <bool Fixed>
struct mailbox_exchanged_relaxed : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr auto order = Fixed ? memory_order::acq_rel : memory_order::relaxed;
        block.each_warp([&](warp& self) {
            warp_rows sum, values;
            load(self, sum, args.in.at(16 * block.index().x, 0));
            store(self, args.work.at(16 * block.index().x, 0), sum);
            const int found = atomic_exchange<order>(self, args.flags, block.index().x + 1);
            if (found == 0) return;
            load(self, values, args.work.at(16 * (found - 1), 0));
            combine(self, sum, values, functional::add{});
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(atomics, mailbox_exchanged_relaxed, 2, relaxed_publication, race)

// The lock is released by a relaxed store.
template <bool Fixed>
struct lock_released_relaxed : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            take(self, args.flags);
            add_rows(self, args, 16 * block.index().x);
            give<Fixed ? memory_order::release : memory_order::relaxed>(self, args.flags);
        });
    }
};
HAZARD(atomics, lock_released_relaxed, 4, relaxed_publication, race)

// The lock is taken by a relaxed compare-exchange.
template <bool Fixed>
struct lock_taken_relaxed : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            take<Fixed ? memory_order::acquire : memory_order::relaxed>(self, args.flags);
            add_rows(self, args, 16 * block.index().x);
            give(self, args.flags);
        });
    }
};
HAZARD(atomics, lock_taken_relaxed, 4, relaxed_publication, race)

// The sum is read before the lock is taken.
template <bool Fixed>
struct data_read_before_the_lock : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows sum, values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            if constexpr (Fixed) take(self, args.flags);
            load(self, sum, args.out.at(0, 0));
            if constexpr (!Fixed) take(self, args.flags);
            combine(self, sum, values, functional::add{});
            store(self, args.out.at(0, 0), sum);
            give(self, args.flags);
        });
    }
};
HAZARD(atomics, data_read_before_the_lock, 4, race)

// The lock is released before the sum is stored.
template <bool Fixed>
struct data_stored_after_the_unlock : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows sum, values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            take(self, args.flags);
            load(self, sum, args.out.at(0, 0));
            combine(self, sum, values, functional::add{});
            if constexpr (!Fixed) give(self, args.flags);
            store(self, args.out.at(0, 0), sum);
            if constexpr (Fixed) give(self, args.flags);
        });
    }
};
HAZARD(atomics, data_stored_after_the_unlock, 4, race)

// Each block has a lock of its own around the same sum.
template <bool Fixed>
struct two_locks_for_one_sum : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            int* const lock = args.flags + (Fixed ? 0 : block.index().x);
            take(self, lock);
            add_rows(self, args, 16 * block.index().x);
            give(self, lock);
        });
    }
};
HAZARD(atomics, two_locks_for_one_sum, 2, race)

// A block leaves without releasing the lock, and the others wait forever.
template <bool Fixed>
struct lock_never_released : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            take(self, args.flags);
            add_rows(self, args, 16 * block.index().x);
            if (Fixed || block.index().x != 1) give(self, args.flags);
        });
    }
};
HAZARD_THAT_HANGS(atomics, lock_never_released, 4, deadlock)

// Two blocks take two locks in opposite order.
template <bool Fixed>
struct two_locks_in_opposite_order : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int first = Fixed ? 0 : block.index().x;
            for (int i = 0; i < 8; ++i) {
                take(self, args.flags + first);
                take(self, args.flags + 1 - first);
                add_rows(self, args, 16 * block.index().x);
                give(self, args.flags + 1 - first);
                give(self, args.flags + first);
            }
        });
    }
};
HAZARD_THAT_HANGS(atomics, two_locks_in_opposite_order, 2, deadlock)

// Two blocks increment a counter, one as 32 and the other as 64 bits: together that is not atomic.
template <bool Fixed>
struct atomics_of_two_sizes_at_one_address : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (Fixed || block.index().x % 2 == 0) {
                atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
            } else {
                atomic_fetch_add<memory_order::relaxed>(self, reinterpret_cast<unsigned long long*>(args.flags), 1);
            }
            if (!is_last_to_arrive(self, args.flags + 8, block.count().x)) return;
            warp_rows values;
            fill(self, values, static_cast<float>(atomic_load<memory_order::relaxed>(self, args.flags)));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(atomics, atomics_of_two_sizes_at_one_address, 4, race)

}  // namespace
