// Correct kernels with unusual use of global memory: flags, counters, locks, PDL, asynchronous stores.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;
using warp_values = warp_tile<float, 64, 32>;

struct staging {
    tile values;
    transaction_barrier landing;
};

struct at_least {
    int count;
    IMBREX_FN bool operator()(int value) const { return value >= count; }
};

IMBREX_KERNEL void copy_rows(const warp& self, global_tile<float> to, global_tile<const float> from) {
    warp_rows values;
    load(self, values, from);
    store(self, to, values);
}

template <class Scope>
IMBREX_KERNEL void stage(const Scope& self, tile& to, const corpus_arguments& args, int row) {
    load(self, to, args.in.at(row, 0));
    fence_async(self);
    self.sync();
}

// A block waits only for an earlier ticket, whose holder runs, and the release of each prefix is acquired by the next.
struct ticket_ordered_look_back : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
            int* const flags = args.flags + 1;
            float prefix = get(self, args.in.at(own, 0).pointer);
            if (own > 0) {
                wait_for_value<memory_order::acquire>(self, flags + own - 1, at_least{1});
                prefix += get(self, args.work.pointer + own - 1);
            }
            put(self, args.work.pointer + own, prefix);
            atomic_store<memory_order::release>(self, flags + own, 1);
            warp_rows values;
            fill(self, values, prefix);
            store(self, args.out.at(16 * own, 0), values);
        });
    }
};
CORRECT(grid_flags, ticket_ordered_look_back, 6)

// The status and the value are one word, so a relaxed wait is enough: the atomic operation carries the data itself.
struct look_back_with_the_value_in_the_flag : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
            int* const sums = args.flags + 1;
            int prefix = own + 1;
            if (own > 0) prefix += wait_for_value<memory_order::relaxed>(self, sums + own - 1, at_least{1});
            atomic_store<memory_order::relaxed>(self, sums + own, prefix);
            warp_rows values;
            fill(self, values, static_cast<float>(prefix));
            store(self, args.out.at(16 * own, 0), values);
        });
    }
};
CORRECT(grid_flags, look_back_with_the_value_in_the_flag, 6)

// All blocks are resident; the counter is never reset, and each barrier waits for a higher count.
struct grid_barrier_with_growing_counts : cooperative_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        const int blocks = block.count().x, own = 64 * block.index().x, other = 64 * (blocks - 1) - own;
        for (int round = 0; round < 3; ++round) {
            block.each_warp([&](warp& self) {
                const int row = 16 * self.index();
                copy_rows(self, args.work.at(own + row, 0),
                          round == 0 ? args.in.at(own + row, 0) : args.out.at(own + row, 0));
            });
            grid_barrier(block, args, 2 * round + 1);
            block.each_warp([&](warp& self) {
                const int row = 16 * self.index();
                copy_rows(self, args.out.at(own + row, 0), args.work.at(other + row, 0));
            });
            grid_barrier(block, args, 2 * round + 2);
        }
    }

    template <class Block>
    IMBREX_KERNEL static void grid_barrier(Block& block, const corpus_arguments& args, int number) {
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            atomic_fetch_add<memory_order::release>(self, args.flags, 1);
            wait_for_value<memory_order::acquire>(self, args.flags, at_least{number * block.count().x});
        });
        block.sync();
    }
};
CORRECT(grid_flags, grid_barrier_with_growing_counts, 3)

// No block waits: the arrivals are acquire and release, so the last one sees the rows of all.
struct last_block_adds_up : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            copy_rows(self, args.work.at(16 * block.index().x, 0), args.in.at(16 * block.index().x, 0));
            if (!is_last_to_arrive(self, args.flags, block.count().x)) return;
            warp_rows sum, values;
            fill(self, sum, 0.0f);
            for (int i = 0; i < block.count().x; ++i) {
                load(self, values, args.work.at(16 * i, 0));
                combine(self, sum, values, functional::add{});
            }
            store(self, args.out.at(0, 0), sum);
        });
    }
};
CORRECT(grid_flags, last_block_adds_up, 5)

// Blocks past the data leave at once, and the count of arrivals does not include them.
struct last_of_the_blocks_that_do_not_exit_early : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr int working = 3;
        if (block.index().x >= working) return;
        block.each_warp([&](warp& self) {
            copy_rows(self, args.work.at(16 * block.index().x, 0), args.in.at(16 * block.index().x, 0));
            if (!is_last_to_arrive(self, args.flags, working)) return;
            for (int i = 0; i < working; ++i) copy_rows(self, args.out.at(16 * i, 0), args.work.at(16 * i, 0));
        });
    }
};
CORRECT(grid_flags, last_of_the_blocks_that_do_not_exit_early, 5)

// Release and acquire are transitive: the third block sees the rows of the first through the second.
struct release_chain_over_three_blocks : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x;
            if (own == 0) copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
            if (own > 0) wait_for_value<memory_order::acquire>(self, args.flags + own - 1, at_least{1});
            if (own < 2) atomic_store<memory_order::release>(self, args.flags + own, 1);
            if (own == 2) copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
        });
    }
};
CORRECT(grid_flags, release_chain_over_three_blocks, 3)

// A relaxed addition after the release continues it: who acquires the sum sees the rows of block 0.
struct release_continued_by_a_relaxed_addition : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                atomic_store<memory_order::release>(self, args.flags, 1);
            } else if (block.index().x == 1) {
                wait_for_value<memory_order::relaxed>(self, args.flags, at_least{1});
                atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{2});
                copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
            }
        });
    }
};
CORRECT(grid_flags, release_continued_by_a_relaxed_addition, 3)

// The flag is polled relaxed, and then read once more with acquire.
struct flag_checked_twice : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                atomic_store<memory_order::release>(self, args.flags, 1);
            } else {
                wait_for_value<memory_order::relaxed>(self, args.flags, at_least{1});
                if (atomic_load<memory_order::acquire>(self, args.flags) == 1) {
                    copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
                }
            }
        });
    }
};
CORRECT(grid_flags, flag_checked_twice, 2)

// The waiting warp has nothing to read; it tells the reading role of its own block by a named barrier.
struct flag_awaited_for_another_role : cooperative_kernel<8> {
    struct arrived {};
    using barriers = named_barriers<arrived>;

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.roles(single_warps<1>("flags",
                                    [&](warp& self) {
                                        if (block.index().x == 0) {
                                            barriers::of<arrived>().sync(self, 5);
                                            atomic_store<memory_order::release>(self, args.flags, 1);
                                        } else {
                                            wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
                                            barriers::of<arrived>().arrive(self, 5);
                                        }
                                    }),
                    consumers<1>("rows", [&](warpgroup& self) {
                        warpgroup_tile<float, 64, 32> values;
                        if (block.index().x == 0) {
                            load(self, values, args.in.at(0, 0));
                            store(self, args.work.at(0, 0), values);
                            barriers::of<arrived>().arrive(self, 5);
                        } else {
                            barriers::of<arrived>().sync(self, 5);
                            load(self, values, args.work.at(0, 0));
                            store(self, args.out.at(0, 0), values);
                        }
                    }));
    }
};
CORRECT(grid_flags, flag_awaited_for_another_role, 2)

// Block scope is enough between the warps of one block.
struct flag_of_block_scope_within_a_block : hazard_kernel<2> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            int* const flag = args.flags + block.index().x;
            const int row = 16 * block.index().x;
            if (self.index() == 0) {
                copy_rows(self, args.work.at(row, 0), args.in.at(row, 0));
                atomic_store<memory_order::release, memory_scope::block>(self, flag, 1);
            } else {
                wait_for_value<memory_order::acquire, memory_scope::block>(self, flag, at_least{1});
                copy_rows(self, args.out.at(row, 0), args.work.at(row, 0));
            }
        });
    }
};
CORRECT(grid_flags, flag_of_block_scope_within_a_block, 3)

// The blocks of a cluster are resident together, and cluster scope is enough between them.
struct flags_of_cluster_scope_within_a_cluster : hazard_kernel<1, 2> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x, other = own ^ 1;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            atomic_store<memory_order::release, memory_scope::cluster>(self, args.flags + own, 1);
            wait_for_value<memory_order::acquire, memory_scope::cluster>(self, args.flags + other, at_least{1});
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
        });
    }
};
CORRECT(grid_flags, flags_of_cluster_scope_within_a_cluster, 4)

// The TMA store is complete before the flag publishes it.
struct completed_tma_store_published_by_a_flag : cooperative_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                stage(self, shared.values, args, 0);
                store_async(self, args.work_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                wait_stores(self);
                atomic_store<memory_order::release>(self, args.flags, 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
                warp_values values;
                load(self, values, args.work.at(0, 0));
                store(self, args.out.at(0, 0), values);
            }
        });
    }
};
CORRECT(grid_flags, completed_tma_store_published_by_a_flag, 2)

// Every tile is drawn by one block only; which one does not matter.
struct tiles_drawn_from_a_counter : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            for (;;) {
                const int number = atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
                if (number >= 10) return;
                copy_rows(self, args.out.at(16 * number, 0), args.in.at(16 * number, 0));
            }
        });
    }
};
CORRECT(atomics, tiles_drawn_from_a_counter, 3)

// The lock is taken with acquire and released with release, so each block sees the sum of the one before. A block waits
// only for the holder, which runs.
struct sum_under_a_lock : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows sum, values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            do {
                wait_for_value<memory_order::relaxed>(self, args.flags, [](int value) { return value == 0; });
            } while (atomic_compare_exchange<memory_order::acquire>(self, args.flags, 0, 1) != 0);
            load(self, sum, args.out.at(0, 0));
            combine(self, sum, values, functional::add{});
            store(self, args.out.at(0, 0), sum);
            atomic_exchange<memory_order::release>(self, args.flags, 0);
        });
    }
};
CORRECT(atomics, sum_under_a_lock, 4)

// All blocks add to the same rows, atomically. The sums are exact, so their order does not matter.
struct all_blocks_add_to_the_same_rows : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            for (int i = 0; i < 2; ++i) {
                load(self, values, args.in.at(32 * block.index().x + 16 * i, 0));
                atomic_add(self, args.out.at(0, 0), values);
            }
        });
    }
};
CORRECT(atomics, all_blocks_add_to_the_same_rows, 4)

// TMA reductions of several blocks to one tile are atomic.
struct tma_reductions_of_all_blocks_to_one_tile : hazard_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            stage(self, shared.values, args, 64 * block.index().x);
            for (int i = 0; i < 2; ++i) {
                reduce_add_async(self, args.out_tensor.tile(0, 0), shared.values);
                commit_stores(self);
            }
            wait_stores(self);
        });
    }
};
CORRECT(global_memory, tma_reductions_of_all_blocks_to_one_tile, 4)

// Neighbouring blocks write different columns of the same rows.
struct blocks_write_interleaved_columns : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, 16> values;
            for (int row = 0; row < 64; row += 16) {
                load(self, values, args.in.at(row, 16 * block.index().x));
                store(self, args.out.at(row, 16 * block.index().x), values);
            }
        });
    }
};
CORRECT(global_memory, blocks_write_interleaved_columns, 4)

// The tiles overlap in memory, but the view of each block ends with its own rows, and the rest is not stored.
struct overlapping_tiles_clipped_by_their_views : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warpgroup([&](warpgroup& self) {
            const int first = 40 * block.index().x;
            warpgroup_tile<float, 64, 32> values;
            load(self, values, args.in.at(first, 0));
            store(self, matrix(args.out.at(first, 0).pointer, 40, columns).at(0, 0), values);
        });
    }
};
CORRECT(global_memory, overlapping_tiles_clipped_by_their_views, 4)

// The warps read what they have written themselves; no sync is needed.
struct warps_read_back_their_own_rows : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 32> values;
            load(self, values, args.in.at(0, 0));
            store(self, args.work.at(0, 0), values);
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
CORRECT(global_memory, warps_read_back_their_own_rows, 1)

struct writes_work : pdl_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            pdl_launch_dependents(self);
            const int own = 16 * block.index().x;
            copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
        });
    }
};

// Before pdl_wait the second kernel reads only what no kernel writes, also by TMA.
struct constants_prefetched_before_pdl_wait {
    using first = writes_work;
    struct second : pdl_kernel<1> {
        using shared_memory = staging;

        template <class Block>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
            shared.landing.init(block, 1);
            fence_barriers(block);
            block.sync();
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(7, 0), shared.landing);
                warp_rows values, constants;
                load(self, constants, args.in.at(256 + own, 0));
                pdl_wait(self);
                load(self, values, args.work.at(own, 0));
                combine(self, values, constants, functional::multiply{});
                shared.landing.wait(self, 0);
                load(self, constants, shared.values.subtile<16>(0));
                combine(self, values, constants, functional::add{});
                store(self, args.out.at(own, 0), values);
            });
        }
    };
};
CORRECT_TWO_KERNELS(pdl, constants_prefetched_before_pdl_wait, 4)

// The second kernel stores before pdl_wait, to rows that the first one does not touch.
struct other_rows_stored_before_pdl_wait {
    using first = writes_work;
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                copy_rows(self, args.out.at(256 + own, 0), args.in.at(own, 0));
                copy_rows(self, args.work.at(256 + own, 0), args.in.at(own, 0));
                pdl_wait(self);
                copy_rows(self, args.out.at(own, 0), args.work.at(own, 0));
            });
        }
    };
};
CORRECT_TWO_KERNELS(pdl, other_rows_stored_before_pdl_wait, 4)

// Only the producer waits; the consumers are ordered after it by the landing of its load.
struct pdl_wait_by_the_producer {
    using first = writes_work;
    struct second : pdl_kernel<8> {
        using shared_memory = staging;

        template <class Block>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
            shared.landing.init(block, 1);
            fence_barriers(block);
            block.sync();
            block.roles(producer([&](warp& self) {
                            pdl_wait(self);
                            shared.landing.expect(self, tile::bytes);
                            load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
                        }),
                        consumers<1>([&](warpgroup& self) {
                            warpgroup_tile<float, 64, 32> values;
                            shared.landing.wait(self, 0);
                            load(self, values, shared.values);
                            store(self, args.out.at(64 * block.index().x, 0), values);
                        }));
        }
    };
};
CORRECT_TWO_KERNELS(pdl, pdl_wait_by_the_producer, 4)

// The first kernel never lets the second start early, which waits all the same.
struct pdl_wait_without_launch_of_dependents {
    struct first : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
            });
        }
    };
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                pdl_wait(self);
                pdl_wait(self);
                copy_rows(self, args.out.at(own, 0), args.work.at(own, 0));
            });
        }
    };
};
CORRECT_TWO_KERNELS(pdl, pdl_wait_without_launch_of_dependents, 4)

}  // namespace
