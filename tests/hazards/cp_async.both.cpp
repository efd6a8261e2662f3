// cp.async: groups of copies, the number of groups that a wait leaves, and the syncs of lanes and warps around it.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warpgroup_values = warpgroup_tile<float, 64, 32>;
using row_tile = warp_tile<float, 16, 32>;

struct three_tiles {
    tile tiles[3];
};

IMBREX_KERNEL void show(warpgroup& self, const corpus_arguments& args, const tile& from, int number) {
    warpgroup_values values;
    load(self, values, from);
    store(self, args.out.at(64 * number, 0), values);
}

// The copy is read before it has been waited for.
template <bool Fixed>
struct copy_read_before_the_wait : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            copy_async(self, shared.tiles[0], args.in.at(0, 0));
            commit_copies(self);
            if constexpr (Fixed) wait_copies(self);
            self.sync();
            show(self, args, shared.tiles[0], 0);
            wait_copies(self);
        });
    }
};
HAZARD(cp_async, copy_read_before_the_wait, 1, read_before_landed)

// The copy is not committed, so the wait does not cover it.
template <bool Fixed>
struct copy_never_committed : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            copy_async(self, shared.tiles[0], args.in.at(0, 0));
            if constexpr (Fixed) commit_copies(self);
            wait_copies(self);
            self.sync();
            show(self, args, shared.tiles[0], 0);
        });
    }
};
HAZARD(cp_async, copy_never_committed, 1, read_before_landed)

// The second copy of a group is issued after the commit: it belongs to the next group, which the wait leaves.
template <bool Fixed>
struct copy_after_the_commit : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            copy_async(self, shared.tiles[0], args.in.at(0, 0));
            if constexpr (Fixed) copy_async(self, shared.tiles[1], args.in.at(64, 0));
            commit_copies(self);
            if constexpr (!Fixed) copy_async(self, shared.tiles[1], args.in.at(64, 0));
            copy_async(self, shared.tiles[2], args.in.at(128, 0));
            commit_copies(self);
            wait_copies<1>(self);
            self.sync();
            show(self, args, shared.tiles[0], 0);
            show(self, args, shared.tiles[1], 1);
            wait_copies(self);
            self.sync();
            show(self, args, shared.tiles[2], 2);
        });
    }
};
HAZARD(cp_async, copy_after_the_commit, 1, read_before_landed)

// The wait leaves the group that is read.
template <bool Fixed>
struct wait_leaves_the_group_that_is_read : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                copy_async(self, shared.tiles[i], args.in.at(64 * i, 0));
                commit_copies(self);
            }
            wait_copies<Fixed ? 0 : 1>(self);
            self.sync();
            show(self, args, shared.tiles[1], 1);
            show(self, args, shared.tiles[0], 0);
            wait_copies(self);
        });
    }
};
HAZARD(cp_async, wait_leaves_the_group_that_is_read, 1, read_before_landed)

// A mainloop of six steps over three stages, with two tiles prefetched. Left: the groups that the wait leaves. Copied: the
// number of tiles that are copied. CommitAll: each step commits a group, even an empty one.
template <int Left, int Copied, bool CommitAll>
IMBREX_KERNEL void run_mainloop(warpgroup& self, const corpus_arguments& args, three_tiles& shared) {
    for (int i = 0; i < 2; ++i) {
        copy_async(self, shared.tiles[i], args.in.at(64 * i, 0));
        commit_copies(self);
    }
    for (int i = 0; i < 6; ++i) {
        wait_copies<Left>(self);
        self.sync();
        show(self, args, shared.tiles[i % 3], i);
        const int next = i + 2;
        if (next < Copied) copy_async(self, shared.tiles[next % 3], args.in.at(64 * next, 0));
        if (CommitAll || next < Copied) commit_copies(self);
    }
}

// The wait of a mainloop with three stages leaves two groups instead of one.
template <bool Fixed>
struct mainloop_wait_leaves_two : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            run_mainloop<Fixed ? 1 : 2, 6, true>(self, args, shared);
            wait_copies(self);
        });
    }
};
HAZARD(cp_async, mainloop_wait_leaves_two, 1, read_before_landed)

// The last steps copy nothing and commit no empty group, so the wait leaves the last copy.
template <bool Fixed>
struct no_empty_groups_at_the_end : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            run_mainloop<1, 6, Fixed>(self, args, shared);
            wait_copies(self);
        });
    }
};
HAZARD(cp_async, no_empty_groups_at_the_end, 1, read_before_landed)

// The mainloop prefetches one tile too many, and nothing waits for it before the block exits.
template <bool Fixed>
struct last_prefetch_never_waited_for : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) { run_mainloop<1, Fixed ? 6 : 7, true>(self, args, shared); });
    }
};
HAZARD(cp_async, last_prefetch_never_waited_for, 1, in_flight_at_exit)

// The warps of a group read each other's copies without a sync after the wait.
template <bool Fixed>
struct warps_read_copies_of_others : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            copy_async(self, shared.tiles[0], args.in.at(0, 0));
            commit_copies(self);
            if constexpr (!Fixed) self.sync();
            wait_copies(self);
            if constexpr (Fixed) self.sync();
            show(self, args, shared.tiles[0], 0);
        });
    }
};
HAZARD(cp_async, warps_read_copies_of_others, 1, unsynchronised_scope)

struct tiles_of_warps {
    shared_tile<float, 16, 32> mine[4];
};

// The lanes of a warp read each other's copies without a sync after the wait.
template <bool Fixed>
struct lanes_read_copies_of_others : hazard_kernel<4> {
    using shared_memory = tiles_of_warps;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            const int row = 16 * self.index();
            copy_async(self, shared.mine[self.index()], args.in.at(row, 0));
            commit_copies(self);
            wait_copies(self);
            if constexpr (Fixed) self.sync();
            row_tile values;
            load(self, values, shared.mine[self.index()]);
            store(self, args.out.at(row, 0), values);
        });
    }
};
HAZARD(cp_async, lanes_read_copies_of_others, 1, unsynchronised_scope)

// The lanes of a warp copy over data that other lanes have not read yet.
template <bool Fixed>
struct lanes_copy_over_unread_data : hazard_kernel<4> {
    using shared_memory = tiles_of_warps;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 4; ++i) {
                const int row = 64 * i + 16 * self.index();
                copy_async(self, shared.mine[self.index()], args.in.at(row, 0));
                commit_copies(self);
                wait_copies(self);
                self.sync();
                row_tile values;
                load(self, values, shared.mine[self.index()]);
                if constexpr (Fixed) self.sync();
                store(self, args.out.at(row, 0), values);
            }
        });
    }
};
HAZARD(cp_async, lanes_copy_over_unread_data, 1, unsynchronised_scope)

// With two stages, a copy into the stage that was just read needs a sync after the read.
template <bool Fixed>
struct copy_over_the_stage_just_read : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                copy_async(self, shared.tiles[i], args.in.at(64 * i, 0));
                commit_copies(self);
            }
            for (int i = 0; i < 6; ++i) {
                wait_copies<1>(self);
                self.sync();
                show(self, args, shared.tiles[i % 2], i);
                if constexpr (Fixed) self.sync();
                if (i + 2 < 6) copy_async(self, shared.tiles[i % 2], args.in.at(64 * (i + 2), 0));
                commit_copies(self);
            }
        });
    }
};
HAZARD(cp_async, copy_over_the_stage_just_read, 1, unsynchronised_scope)

// A second copy into the tile is issued while the first is in flight: either may land last.
template <bool Fixed>
struct second_copy_over_the_first : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                copy_async(self, shared.tiles[0], args.in.at(64 * i, 0));
                commit_copies(self);
                if constexpr (Fixed) wait_copies(self);
                self.sync();
            }
            wait_copies(self);
            self.sync();
            show(self, args, shared.tiles[0], 0);
        });
    }
};
HAZARD(cp_async, second_copy_over_the_first, 1, overwritten_in_flight)

// The block waits for its copies, and its warps read them without a block sync.
template <bool Fixed>
struct block_copies_read_by_warps : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        copy_async(block, shared.tiles[0], args.in.at(0, 0));
        commit_copies(block);
        wait_copies(block);
        if constexpr (Fixed) block.sync();
        block.each_warp([&](warp& self) {
            row_tile values;
            load(self, values, shared.tiles[0].subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(cp_async, block_copies_read_by_warps, 1, unsynchronised_scope)

}  // namespace
