// Ordinary accesses to global memory: between the warps and roles of a block, between blocks, of memory that nobody has
// written, and outside a view.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;
using group_rows = warpgroup_tile<float, 64, 32>;

struct handover {};
using barriers = named_barriers<handover>;

struct one_tile {
    tile values;
};

// Both warpgroups store to the same rows.
template <bool Fixed>
struct two_warpgroups_store_the_same_rows : hazard_kernel<8> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warpgroup([&](warpgroup& self) {
            group_rows values;
            load(self, values, args.in.at(64 * self.index(), 0));
            store(self, args.out.at(Fixed ? 64 * self.index() : 0, 0), values);
        });
    }
};
HAZARD(global_memory, two_warpgroups_store_the_same_rows, 1, race)

// The block index is missing in the row: all blocks store to the same rows.
template <bool Fixed>
struct blocks_store_the_same_rows : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int first = 64 * block.index().x;
            warp_rows values;
            load(self, values, args.in.at(first + 16 * self.index(), 0));
            store(self, args.out.at((Fixed ? first : 0) + 16 * self.index(), 0), values);
        });
    }
};
HAZARD(global_memory, blocks_store_the_same_rows, 3, race)

// The tiles of 64 rows are 56 rows apart, so that neighbouring blocks both store eight rows.
template <bool Fixed>
struct tiles_of_neighbouring_blocks_overlap : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warpgroup([&](warpgroup& self) {
            group_rows values;
            load(self, values, args.in.at(64 * block.index().x, 0));
            store(self, args.out.at((Fixed ? 64 : 56) * block.index().x, 0), values);
        });
    }
};
HAZARD(global_memory, tiles_of_neighbouring_blocks_overlap, 4, race)

// A rectangle of a view reaches to the end of the matrix: each block fills the rows of all later blocks, too.
template <bool Fixed>
struct fill_reaches_the_rows_of_other_blocks : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const auto rest = args.out.at(16 * block.index().x, 0);
            const auto own = matrix(rest.pointer, 16, columns).at(0, 0);
            fill(self, Fixed ? own : rest, static_cast<float>(block.index().x + 1));
        });
    }
};
HAZARD(global_memory, fill_reaches_the_rows_of_other_blocks, 4, race)

// A block reads the rows that its neighbour writes in the same kernel.
template <bool Fixed>
struct block_reads_the_rows_of_its_neighbour : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = 16 * block.index().x;
            const int other = 16 * ((block.index().x + 1) % block.count().x);
            warp_rows values;
            load(self, values, args.in.at(own, 0));
            store(self, args.work.at(own, 0), values);
            load(self, values, args.work.at(Fixed ? own : other, 0));
            store(self, args.out.at(own, 0), values);
        });
    }
};
HAZARD(global_memory, block_reads_the_rows_of_its_neighbour, 4, race, uninitialised_read)

// Block 0 writes a table that all blocks read.
template <bool Fixed>
struct table_of_block_zero_read_by_all : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int table = Fixed ? 16 * block.index().x : 0;
            warp_rows values, factors;
            if (Fixed || block.index().x == 0) {
                load(self, factors, args.in.at(496, 0));
                store(self, args.work.at(table, 0), factors);
            }
            load(self, values, args.in.at(16 * block.index().x, 0));
            load(self, factors, args.work.at(table, 0));
            combine(self, values, factors, functional::multiply{});
            store(self, args.out.at(16 * block.index().x, 0), values);
        });
    }
};
HAZARD(global_memory, table_of_block_zero_read_by_all, 4, race, uninitialised_read)

// Two blocks add to the same rows by an ordinary load and store.
template <bool Fixed>
struct two_blocks_add_by_load_and_store : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows sum, values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            if constexpr (Fixed) {
                atomic_add(self, args.out.at(0, 0), values);
            } else {
                load(self, sum, args.out.at(0, 0));
                combine(self, sum, values, functional::add{});
                store(self, args.out.at(0, 0), sum);
            }
        });
    }
};
HAZARD(global_memory, two_blocks_add_by_load_and_store, 2, race)

struct copy_to_work : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            store(self, args.work.at(16 * block.index().x, 0), values);
        });
    }
};

// Two blocks swap their tiles in place: one stores to the rows that the other still has to load.
template <bool Fixed>
struct tiles_swapped_in_place_between_blocks {
    using first = copy_to_work;
    struct second : hazard_kernel<1> {
        template <class Block, class Shared>
        IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
            block.each_warp([&](warp& self) {
                const int own = 16 * block.index().x, other = 16 - own;
                warp_rows values;
                load(self, values, args.work.at(other, 0));
                if constexpr (!Fixed) store(self, args.work.at(own, 0), values);
                store(self, args.out.at(own, 0), values);
            });
        }
    };
};
HAZARD_OF_TWO_KERNELS(global_memory, tiles_swapped_in_place_between_blocks, 2, race)

// A role reads rows that another role writes; there is no barrier.
template <bool Fixed>
struct role_reads_rows_of_another_role : hazard_kernel<8> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.roles(consumers<1>("writer",
                                 [&](warpgroup& self) {
                                     group_rows values;
                                     load(self, values, args.in.at(0, 0));
                                     store(self, args.work.at(0, 0), values);
                                     if constexpr (Fixed) barriers::of<handover>().arrive(self, 8);
                                 }),
                    consumers<1>("reader", [&](warpgroup& self) {
                        group_rows values;
                        if constexpr (Fixed) barriers::of<handover>().sync(self, 8);
                        load(self, values, args.work.at(0, 0));
                        store(self, args.out.at(0, 0), values);
                    }));
    }
};
HAZARD(global_memory, role_reads_rows_of_another_role, 1, race, uninitialised_read)

// The writing role arrives before its store.
template <bool Fixed>
struct role_arrives_before_its_global_store : hazard_kernel<8> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.roles(consumers<1>("writer",
                                 [&](warpgroup& self) {
                                     group_rows values;
                                     load(self, values, args.in.at(0, 0));
                                     if constexpr (!Fixed) barriers::of<handover>().arrive(self, 8);
                                     store(self, args.work.at(0, 0), values);
                                     if constexpr (Fixed) barriers::of<handover>().arrive(self, 8);
                                 }),
                    consumers<1>("reader", [&](warpgroup& self) {
                        group_rows values;
                        barriers::of<handover>().sync(self, 8);
                        load(self, values, args.work.at(0, 0));
                        store(self, args.out.at(0, 0), values);
                    }));
    }
};
HAZARD(global_memory, role_arrives_before_its_global_store, 1, race, uninitialised_read)

// A role overwrites rows that another role still reads: the reader arrives before its load.
template <bool Fixed>
struct rows_overwritten_while_another_role_reads : hazard_kernel<8> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.roles(consumers<1>("reader",
                                 [&](warpgroup& self) {
                                     group_rows values;
                                     load(self, values, args.in.at(0, 0));
                                     store(self, args.work.at(0, 0), values);
                                     if constexpr (!Fixed) barriers::of<handover>().arrive(self, 8);
                                     load(self, values, args.work.at(0, 0));
                                     store(self, args.out.at(0, 0), values);
                                     if constexpr (Fixed) barriers::of<handover>().arrive(self, 8);
                                 }),
                    consumers<1>("writer", [&](warpgroup& self) {
                        group_rows values;
                        fill(self, values, 1.0f);
                        barriers::of<handover>().sync(self, 8);
                        store(self, args.work.at(0, 0), values);
                    }));
    }
};
HAZARD(global_memory, rows_overwritten_while_another_role_reads, 1, race)

// The warps read the rows of each other; there is no block sync in between.
template <bool Fixed>
struct warps_read_global_rows_of_each_other : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.in.at(16 * self.index(), 0));
            store(self, args.work.at(16 * self.index(), 0), values);
        });
        if constexpr (Fixed) block.sync();
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.work.at(48 - 16 * self.index(), 0));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(global_memory, warps_read_global_rows_of_each_other, 1, race, unsynchronised_scope, uninitialised_read)

// A fill of a warpgroup distributes the rows over its warps differently from a load; there is no sync in between.
template <bool Fixed>
struct group_loads_what_it_filled : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warpgroup([&](warpgroup& self) {
            group_rows values;
            fill(self, args.work.at(448, 0), 3.0f);
            if constexpr (Fixed) self.sync();
            load(self, values, args.work.at(448, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, group_loads_what_it_filled, 1, unsynchronised_scope)

// The block copies a shared tile to global memory, and its warps read that without a block sync.
template <bool Fixed>
struct warps_read_what_the_block_copied_out : hazard_kernel<4> {
    using shared_memory = one_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load(block, shared.values, args.in.at(0, 0));
        block.sync();
        store(block, args.work.at(0, 0), shared.values);
        if constexpr (Fixed) block.sync();
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.work.at(16 * self.index(), 0));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(global_memory, warps_read_what_the_block_copied_out, 1, unsynchronised_scope, race, uninitialised_read)

}  // namespace
