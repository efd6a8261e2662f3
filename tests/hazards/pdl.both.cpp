// Programmatic dependent launch: two kernels that overlap.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;
using warp_values = warp_tile<float, 64, 32>;

struct staging {
    tile values;
    transaction_barrier landing;
};

IMBREX_KERNEL void copy_rows(const warp& self, global_tile<float> to, global_tile<const float> from) {
    warp_rows values;
    load(self, values, from);
    store(self, to, values);
}

// Every warp lets the next kernel start and then writes its rows of `work`.
template <int Warps>
struct writes_work : pdl_kernel<Warps> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            pdl_launch_dependents(self);
            const int own = 16 * (Warps * block.index().x + self.index());
            copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
        });
    }
};

// The second kernel reads the rows of the first before pdl_wait.
template <bool Fixed>
struct load_before_pdl_wait {
    using first = writes_work<1>;
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                warp_rows values;
                if constexpr (Fixed) pdl_wait(self);
                load(self, values, args.work.at(own, 0));
                if constexpr (!Fixed) pdl_wait(self);
                store(self, args.out.at(own, 0), values);
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, load_before_pdl_wait, 4, before_pdl_wait, race)

// The TMA load of the first kernel's tile is issued before pdl_wait, and only its landing is awaited after it.
template <bool Fixed>
struct tma_load_before_pdl_wait {
    using first = writes_work<4>;
    struct second : pdl_kernel<1> {
        using shared_memory = staging;

        template <class Block>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
            shared.landing.init(block, 1);
            fence_barriers(block);
            block.sync();
            block.each_warp([&](warp& self) {
                if constexpr (Fixed) pdl_wait(self);
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.work_tensor.tile(block.index().x, 0), shared.landing);
                if constexpr (!Fixed) pdl_wait(self);
                shared.landing.wait(self, 0);
                warp_values values;
                load(self, values, shared.values);
                store(self, args.out.at(64 * block.index().x, 0), values);
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, tma_load_before_pdl_wait, 2, before_pdl_wait, race)

// The second kernel copies a table early by cp.async, as if it were constant, but the first kernel writes it.
template <bool Fixed>
struct table_prefetched_while_the_first_kernel_writes_it {
    using first = writes_work<4>;
    struct second : pdl_kernel<4> {
        using shared_memory = staging;

        template <class Block>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
            block.each_warpgroup([&](warpgroup& self) {
                if constexpr (Fixed) pdl_wait(self);
                copy_async(self, shared.values, args.work.at(0, 0));
                commit_copies(self);
                if constexpr (!Fixed) pdl_wait(self);
                wait_copies(self);
                self.sync();
                warpgroup_tile<float, 64, 32> values;
                load(self, values, shared.values);
                store(self, args.out.at(64 * block.index().x, 0), values);
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, table_prefetched_while_the_first_kernel_writes_it, 2, before_pdl_wait, race)

// The first kernel writes before pdl_launch_dependents, and the second takes that for a release: it never waits.
template <bool Fixed>
struct launch_of_dependents_taken_for_a_release {
    struct first : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
                pdl_launch_dependents(self);
            });
        }
    };
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                if constexpr (Fixed) pdl_wait(self);
                copy_rows(self, args.out.at(own, 0), args.work.at(own, 0));
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, launch_of_dependents_taken_for_a_release, 4, before_pdl_wait, race)

// The second kernel never waits and overwrites the results of the first.
template <bool Fixed>
struct results_overwritten_without_pdl_wait {
    struct first : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                pdl_launch_dependents(self);
                const int own = 16 * block.index().x;
                copy_rows(self, args.out.at(own, 0), args.in.at(own, 0));
            });
        }
    };
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                if constexpr (Fixed) pdl_wait(self);
                copy_rows(self, args.out.at(own, 0), args.in.at(256 + own, 0));
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, results_overwritten_without_pdl_wait, 4, before_pdl_wait, race)

// The second kernel writes, before pdl_wait, rows that the first still reads.
template <bool Fixed>
struct store_before_pdl_wait_to_rows_still_read {
    struct first : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                copy_rows(self, args.work.at(own, 0), args.in.at(own, 0));
                pdl_launch_dependents(self);
                copy_rows(self, args.out.at(own, 0), args.work.at(own, 0));
            });
        }
    };
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                if constexpr (Fixed) pdl_wait(self);
                copy_rows(self, args.work.at(own, 0), args.in.at(256 + own, 0));
                if constexpr (!Fixed) pdl_wait(self);
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, store_before_pdl_wait_to_rows_still_read, 4, before_pdl_wait, race)

// The TMA store of the second kernel is issued before pdl_wait, to a tile that the first kernel stores, too.
template <bool Fixed>
struct tma_store_before_pdl_wait {
    struct first : pdl_kernel<4> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                pdl_launch_dependents(self);
                const int own = 64 * block.index().x + 16 * self.index();
                copy_rows(self, args.out.at(own, 0), args.in.at(own, 0));
            });
        }
    };
    struct second : pdl_kernel<1> {
        using shared_memory = staging;

        template <class Block>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
            block.each_warp([&](warp& self) {
                load(self, shared.values, args.in.at(256 + 64 * block.index().x, 0));
                fence_async(self);
                self.sync();
                if constexpr (Fixed) pdl_wait(self);
                store_async(self, args.out_tensor.tile(block.index().x, 0), shared.values);
                commit_stores(self);
                if constexpr (!Fixed) pdl_wait(self);
                wait_stores(self);
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, tma_store_before_pdl_wait, 2, before_pdl_wait, race)

// One warp calls pdl_wait, and the others read without a block sync.
template <bool Fixed>
struct pdl_wait_by_one_warp_for_all {
    using first = writes_work<4>;
    struct second : pdl_kernel<4> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                if (self.index() == 0) pdl_wait(self);
            });
            if constexpr (Fixed) block.sync();
            block.each_warp([&](warp& self) {
                const int own = 64 * block.index().x + 16 * self.index();
                copy_rows(self, args.out.at(own, 0), args.work.at(own, 0));
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, pdl_wait_by_one_warp_for_all, 2, before_pdl_wait, race)

// The producer waits before its loads; the consumer reads a second operand from global memory and does not wait.
template <bool Fixed>
struct consumer_reads_without_pdl_wait {
    using first = writes_work<4>;
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
                            warpgroup_tile<float, 64, 32> values, added;
                            if constexpr (Fixed) pdl_wait(self);
                            load(self, added, args.work.at(64, 0));
                            shared.landing.wait(self, 0);
                            load(self, values, shared.values);
                            combine(self, values, added, functional::add{});
                            store(self, args.out.at(64 * block.index().x, 0), values);
                        }));
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, consumer_reads_without_pdl_wait, 2, before_pdl_wait, race)

// Only the blocks with an even index wait.
template <bool Fixed>
struct pdl_wait_in_one_branch {
    using first = writes_work<1>;
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x;
                if (Fixed || block.index().x % 2 == 0) pdl_wait(self);
                copy_rows(self, args.out.at(own, 0), args.work.at(own, 0));
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, pdl_wait_in_one_branch, 4, before_pdl_wait, race)

// The wait is in the loop, after the first of the tiles.
template <bool Fixed>
struct pdl_wait_after_the_first_tile {
    using first = writes_work<2>;
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                if constexpr (Fixed) pdl_wait(self);
                for (int i = 0; i < 2; ++i) {
                    const int own = 16 * (2 * block.index().x + i);
                    copy_rows(self, args.out.at(own, 0), args.work.at(own, 0));
                    if (!Fixed && i == 0) pdl_wait(self);
                }
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, pdl_wait_after_the_first_tile, 2, before_pdl_wait, race)

// The second kernel draws tickets before pdl_wait, from a counter that the last block of the first kernel resets.
template <bool Fixed>
struct tickets_drawn_before_pdl_wait {
    struct first : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                pdl_launch_dependents(self);
                if (is_last_to_arrive(self, args.flags, block.count().x)) {
                    copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                }
            });
        }
    };
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                if constexpr (Fixed) pdl_wait(self);
                const int ticket = atomic_fetch_add<memory_order::relaxed>(self, args.flags, 1);
                if constexpr (!Fixed) pdl_wait(self);
                if (ticket < block.count().x) copy_rows(self, args.out.at(16 * ticket, 0), args.work.at(0, 0));
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, tickets_drawn_before_pdl_wait, 4, before_pdl_wait, race)

// The second kernel clears the sum of the first before pdl_wait.
template <bool Fixed>
struct sum_cleared_before_pdl_wait {
    struct first : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                pdl_launch_dependents(self);
                warp_rows values;
                load(self, values, args.in.at(16 * block.index().x, 0));
                atomic_add(self, args.out.at(0, 0), values);
            });
        }
    };
    struct second : pdl_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                warp_rows zeros;
                fill(self, zeros, 0.0f);
                if constexpr (Fixed) pdl_wait(self);
                if (block.index().x == 0) store(self, args.out.at(0, 0), zeros);
                if constexpr (!Fixed) pdl_wait(self);
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(pdl, sum_cleared_before_pdl_wait, 4, before_pdl_wait, race)

}  // namespace
