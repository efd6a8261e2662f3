// Flags between blocks: data that one block publishes and another reads.
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

// Block 0 writes rows of `work` and sets a flag; block 1 waits for the flag and reads them.
template <memory_order Publish, memory_order Observe, memory_scope Among = memory_scope::device>
struct rows_handed_to_block_one : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                atomic_store<Publish, Among>(self, args.flags, 1);
            } else {
                wait_for_value<Observe, Among>(self, args.flags, at_least{1});
                copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
            }
        });
    }
};

// A relaxed store of the flag does not publish the rows.
template <bool Fixed>
struct flag_stored_relaxed
    : rows_handed_to_block_one<Fixed ? memory_order::release : memory_order::relaxed, memory_order::acquire> {};
HAZARD(grid_flags, flag_stored_relaxed, 2, relaxed_publication, race)

// A relaxed wait for the flag does not order the later load of the rows.
template <bool Fixed>
struct flag_read_relaxed
    : rows_handed_to_block_one<memory_order::release, Fixed ? memory_order::acquire : memory_order::relaxed> {};
HAZARD(grid_flags, flag_read_relaxed, 2, relaxed_publication, race)

// Release and acquire of block scope order nothing between two blocks.
template <bool Fixed>
struct flag_of_block_scope : rows_handed_to_block_one<memory_order::release, memory_order::acquire,
                                                      Fixed ? memory_scope::device : memory_scope::block> {};
HAZARD(grid_flags, flag_of_block_scope, 2, relaxed_publication, race)

// The blocks are not a cluster, so release and acquire of cluster scope order nothing between them.
template <bool Fixed>
struct flag_of_cluster_scope : rows_handed_to_block_one<memory_order::release, memory_order::acquire,
                                                        Fixed ? memory_scope::device : memory_scope::cluster> {};
HAZARD(grid_flags, flag_of_cluster_scope, 2, relaxed_publication, race)

// The flag is an ordinary store.
template <bool Fixed>
struct flag_stored_by_an_ordinary_access : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                if constexpr (Fixed) {
                    atomic_store<memory_order::release>(self, args.flags, 1);
                } else {
                    put(self, args.flags, 1);
                }
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
                copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
            }
        });
    }
};
HAZARD(grid_flags, flag_stored_by_an_ordinary_access, 2, race, relaxed_publication)

// The flag is set before the rows are written.
template <bool Fixed>
struct flag_stored_before_the_data : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                if constexpr (!Fixed) atomic_store<memory_order::release>(self, args.flags, 1);
                copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                if constexpr (Fixed) atomic_store<memory_order::release>(self, args.flags, 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
                copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
            }
        });
    }
};
HAZARD(grid_flags, flag_stored_before_the_data, 2, race, uninitialised_read)

// One warp sets the flag without a block sync: it publishes its own rows, not those of the other warps.
template <bool Fixed>
struct flag_stored_without_a_block_sync : cooperative_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        if (block.index().x == 0) {
            block.each_warp([&](warp& self) {
                copy_rows(self, args.work.at(16 * self.index(), 0), args.in.at(16 * self.index(), 0));
            });
            if constexpr (Fixed) block.sync();
            block.each_warp([&](warp& self) {
                if (self.index() == 0) atomic_store<memory_order::release>(self, args.flags, 1);
            });
        } else {
            block.each_warp([&](warp& self) {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
                copy_rows(self, args.out.at(16 * self.index(), 0), args.work.at(16 * self.index(), 0));
            });
        }
    }
};
HAZARD(grid_flags, flag_stored_without_a_block_sync, 2, race, uninitialised_read)

// Every warp sets the same flag when it is done; the reader takes the first one for all of them.
template <bool Fixed>
struct flag_of_the_first_warp_taken_for_all : cooperative_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                copy_rows(self, args.work.at(16 * self.index(), 0), args.in.at(16 * self.index(), 0));
                atomic_fetch_add<memory_order::release>(self, args.flags, 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{Fixed ? 4 : 1});
                copy_rows(self, args.out.at(16 * self.index(), 0), args.work.at(16 * self.index(), 0));
            }
        });
    }
};
HAZARD(grid_flags, flag_of_the_first_warp_taken_for_all, 2, race, uninitialised_read)

// One warp waits for the flag, and the others read without a block sync.
template <bool Fixed>
struct flag_awaited_by_one_warp_for_all : cooperative_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        if (block.index().x == 0) {
            block.each_warp([&](warp& self) {
                copy_rows(self, args.work.at(16 * self.index(), 0), args.in.at(16 * self.index(), 0));
            });
            block.sync();
            block.each_warp([&](warp& self) {
                if (self.index() == 0) atomic_store<memory_order::release>(self, args.flags, 1);
            });
        } else {
            block.each_warp([&](warp& self) {
                if (self.index() == 0) wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
            });
            if constexpr (Fixed) block.sync();
            block.each_warp([&](warp& self) {
                copy_rows(self, args.out.at(16 * self.index(), 0), args.work.at(16 * self.index(), 0));
            });
        }
    }
};
HAZARD(grid_flags, flag_awaited_by_one_warp_for_all, 2, race, uninitialised_read)

// The reader waits for the flag of one writer and reads the rows of both.
template <bool Fixed>
struct flag_of_one_writer_awaited_for_two : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x;
            if (own < 2) {
                copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
                atomic_store<memory_order::release>(self, args.flags + own, 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
                if constexpr (Fixed) wait_for_value<memory_order::acquire>(self, args.flags + 1, at_least{1});
                copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
                copy_rows(self, args.out.at(16, 0), args.work.at(16, 0));
            }
        });
    }
};
HAZARD(grid_flags, flag_of_one_writer_awaited_for_two, 3, race, uninitialised_read)

// A chain of three blocks: the middle one passes the flag on after a relaxed wait, so the last one is not ordered after
// the first.
template <bool Fixed>
struct flag_passed_on_after_a_relaxed_wait : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr auto order = Fixed ? memory_order::acquire : memory_order::relaxed;
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                atomic_store<memory_order::release>(self, args.flags, 1);
            } else if (block.index().x == 1) {
                wait_for_value<order>(self, args.flags, at_least{1});
                atomic_store<memory_order::release>(self, args.flags + 1, 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags + 1, at_least{1});
                copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
            }
        });
    }
};
HAZARD(grid_flags, flag_passed_on_after_a_relaxed_wait, 3, relaxed_publication, race)

// The writer of the next round does not wait until the rows of this one have been read.
template <bool Fixed>
struct next_round_written_before_the_acknowledgement : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            for (int round = 0; round < 3; ++round) {
                if (block.index().x == 0) {
                    if constexpr (Fixed) {
                        wait_for_value<memory_order::acquire>(self, args.flags + 1, at_least{round});
                    }
                    copy_rows(self, args.work.at(0, 0), args.in.at(16 * round, 0));
                    atomic_store<memory_order::release>(self, args.flags, round + 1);
                } else {
                    wait_for_value<memory_order::acquire>(self, args.flags, at_least{round + 1});
                    copy_rows(self, args.out.at(16 * round, 0), args.work.at(0, 0));
                    atomic_store<memory_order::release>(self, args.flags + 1, round + 1);
                }
            }
        });
    }
};
HAZARD(grid_flags, next_round_written_before_the_acknowledgement, 2, race)

// The acknowledgement is relaxed: the rows may be overwritten before they are read.
template <bool Fixed>
struct acknowledgement_stored_relaxed : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        constexpr auto order = Fixed ? memory_order::release : memory_order::relaxed;
        block.each_warp([&](warp& self) {
            for (int round = 0; round < 3; ++round) {
                if (block.index().x == 0) {
                    wait_for_value<memory_order::acquire>(self, args.flags + 1, at_least{round});
                    copy_rows(self, args.work.at(0, 0), args.in.at(16 * round, 0));
                    atomic_store<memory_order::release>(self, args.flags, round + 1);
                } else {
                    wait_for_value<memory_order::acquire>(self, args.flags, at_least{round + 1});
                    copy_rows(self, args.out.at(16 * round, 0), args.work.at(0, 0));
                    atomic_store<order>(self, args.flags + 1, round + 1);
                }
            }
        });
    }
};
HAZARD(grid_flags, acknowledgement_stored_relaxed, 2, relaxed_publication, race)

// The flag publishes a TMA store that has been read from shared memory but need not have been written.
template <bool Fixed>
struct flag_stored_before_the_tma_store_is_complete : cooperative_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                load(self, shared.values, args.in.at(0, 0));
                fence_async(self);
                self.sync();
                store_async(self, args.work_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                if constexpr (Fixed) {
                    wait_stores(self);
                } else {
                    wait_stores_read(self);
                }
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
HAZARD(grid_flags, flag_stored_before_the_tma_store_is_complete, 2, read_before_landed, race, uninitialised_read)

// The flag publishes ordinary stores, which the other block's TMA load does not see without a proxy fence.
template <bool Fixed>
struct published_rows_loaded_by_tma_without_fence : cooperative_kernel<1> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            warp_values values;
            if (block.index().x == 0) {
                load(self, values, args.in.at(0, 0));
                store(self, args.work.at(0, 0), values);
                if constexpr (Fixed) fence_async_global(self);
                atomic_store<memory_order::release>(self, args.flags, 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags, at_least{1});
                if constexpr (Fixed) fence_async_global(self);
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
                shared.landing.wait(self, 0);
                load(self, values, shared.values);
                store(self, args.out.at(0, 0), values);
            }
        });
    }
};
HAZARD(grid_flags, published_rows_loaded_by_tma_without_fence, 2, missing_proxy_fence)

// The writer sets another flag than the one that is awaited.
template <bool Fixed>
struct awaited_flag_is_never_set : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (block.index().x == 0) {
                copy_rows(self, args.work.at(0, 0), args.in.at(0, 0));
                atomic_store<memory_order::release>(self, args.flags + (Fixed ? 1 : 0), 1);
            } else {
                wait_for_value<memory_order::acquire>(self, args.flags + block.index().x, at_least{1});
                copy_rows(self, args.out.at(0, 0), args.work.at(0, 0));
            }
        });
    }
};
HAZARD_THAT_HANGS(grid_flags, awaited_flag_is_never_set, 2, deadlock)

// Each block waits for the other before it sets its own flag.
template <bool Fixed>
struct two_blocks_wait_for_each_other : cooperative_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x, other = 1 - own;
            copy_rows(self, args.work.at(16 * own, 0), args.in.at(16 * own, 0));
            if constexpr (Fixed) atomic_store<memory_order::release>(self, args.flags + own, 1);
            wait_for_value<memory_order::acquire>(self, args.flags + other, at_least{1});
            copy_rows(self, args.out.at(16 * own, 0), args.work.at(16 * other, 0));
            if constexpr (!Fixed) atomic_store<memory_order::release>(self, args.flags + own, 1);
        });
    }
};
HAZARD_THAT_HANGS(grid_flags, two_blocks_wait_for_each_other, 2, deadlock)

}  // namespace
