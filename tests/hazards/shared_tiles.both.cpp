// Shared memory within a block: syncs between accesses of different distributions, scopes, overlays, and parts that
// were never written.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warpgroup_values = warpgroup_tile<float, 64, 32>;
using row_tile = warp_tile<float, 16, 32>;

struct scratch {
    tile values;
    shared_vector<float, 64> sums;
    transaction_barrier landing;
};

struct meeting {};
using barriers = named_barriers<meeting>;

// fill distributes a tile over the warps by elements, store by chunks: a sync is missing.
template <bool Fixed>
struct filled_and_stored_without_sync : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        fill(block, shared.values, 1.0f);
        map_indexed(block, shared.values, [](int row, int column, float x) { return x + 32 * row + column; });
        if constexpr (Fixed) block.sync();
        store(block, args.out.at(0, 0), shared.values);
    }
};
HAZARD(shared_tiles, filled_and_stored_without_sync, 1, unsynchronised_scope)

// A tile is copied in by chunks and read as fragments of rows without a sync.
template <bool Fixed>
struct chunks_read_as_rows : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            load(self, shared.values, args.in.at(0, 0));
            if constexpr (Fixed) self.sync();
            warpgroup_values values;
            load(self, values, shared.values);
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(shared_tiles, chunks_read_as_rows, 1, unsynchronised_scope)

// The block writes a tile and its warps read it without a block sync.
template <bool Fixed>
struct warps_read_the_tile_of_their_block : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load(block, shared.values, args.in.at(0, 0));
        if constexpr (Fixed) block.sync();
        block.each_warp([&](warp& self) {
            row_tile values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(shared_tiles, warps_read_the_tile_of_their_block, 1, unsynchronised_scope)

// The warps write their rows and the block reads all of them without a sync.
template <bool Fixed>
struct block_reads_the_rows_of_its_warps : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            row_tile values;
            load(self, values, args.in.at(16 * self.index(), 0));
            store(self, shared.values.subtile<16>(16 * self.index()), values);
        });
        if constexpr (Fixed) block.sync();
        store(block, args.out.at(0, 0), shared.values);
    }
};
HAZARD(shared_tiles, block_reads_the_rows_of_its_warps, 1, unsynchronised_scope)

// The row sums of four warps are read as columns by all of them without a sync.
template <bool Fixed>
struct row_sums_read_as_columns : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 64> values;
            row_values_of<warpgroup_tile<float, 64, 64>> sums;
            column_values<float, 64> all;
            load(self, values, args.in.at(0, 0));
            reduce_rows(self, sums, values, functional::add{}, 0.0f);
            store(self, shared.sums, sums);
            if constexpr (Fixed) self.sync();
            load(self, all, shared.sums);
            combine_with_columns(self, values, all, functional::subtract{});
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(shared_tiles, row_sums_read_as_columns, 1, unsynchronised_scope)

// The next value is put before all warps have read the last: only one of the two syncs of an exchange is there.
template <bool Fixed>
struct exchange_with_one_sync : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            float total = 0;
            for (int i = 0; i < 4; ++i) {
                put(self, shared.sums, 0, static_cast<float>(1 << i));
                self.sync();
                total += get(self, shared.sums, 0);
                if constexpr (Fixed) self.sync();
            }
            warpgroup_values totals;
            fill(self, totals, total);
            store(self, args.out.at(0, 0), totals);
        });
    }
};
HAZARD(shared_tiles, exchange_with_one_sync, 1, unsynchronised_scope)

// The warps write overlapping rows: each begins eight rows after the one before.
template <bool Fixed>
struct warps_write_overlapping_rows : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        fill(block, shared.values, 0.0f);
        block.sync();
        block.each_warp([&](warp& self) {
            row_tile values;
            load(self, values, args.in.at(16 * self.index(), 0));
            store(self, shared.values.subtile<16>((Fixed ? 16 : 8) * self.index()), values);
        });
        block.sync();
        store(block, args.out.at(0, 0), shared.values);
    }
};
HAZARD(shared_tiles, warps_write_overlapping_rows, 1, race)

// The rows of one warp are never written, and the group reads them all.
template <bool Fixed>
struct rows_never_written : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if (!Fixed && self.index() == 2) return;
            row_tile values;
            load(self, values, args.in.at(16 * self.index(), 0));
            store(self, shared.values.subtile<16>(16 * self.index()), values);
        });
        block.sync();
        store(block, args.out.at(0, 0), shared.values);
    }
};
HAZARD(shared_tiles, rows_never_written, 1, uninitialised_read)

// The last element of a vector is never written.
template <bool Fixed>
struct last_element_never_written : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            for (int i = self.index(); i < (Fixed ? 64 : 63); i += 4) {
                put(self, shared.sums, i, static_cast<float>(i + 1));
            }
        });
        block.sync();
        store(block, args.out.at(0, 0).pointer, 64, shared.sums);
    }
};
HAZARD(shared_tiles, last_element_never_written, 1, uninitialised_read)

// One warp passes the block as the scope of its load: on a device it would load only its share.
template <bool Fixed>
struct one_warp_passes_the_block : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            if constexpr (Fixed) {
                load(self, shared.values, args.in.at(0, 0));
            } else {
                load(block, shared.values, args.in.at(0, 0));
            }
        });
        block.sync();
        store(block, args.out.at(0, 0), shared.values);
    }
};
HAZARD(shared_tiles, one_warp_passes_the_block, 1, wrong_scope)

// Each warp writes an element through a raw pointer and reads its neighbour's without a sync.
template <bool Fixed>
struct raw_elements_without_sync : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            *shared.sums.at(self.index()) = static_cast<float>(self.index() + 1);
            if constexpr (Fixed) barriers::of<meeting>().sync(self, 4);
            const float neighbour = *shared.sums.at((self.index() + 1) % 4);
            put(self, args.out.at(self.index(), 0).pointer, neighbour);
        });
    }
};
HAZARD(shared_tiles, raw_elements_without_sync, 1, race, uninitialised_read)

// All warps add to one element through a raw pointer.
template <bool Fixed>
struct raw_sum_of_all_warps : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        fill_indexed(block, shared.sums, [](int) { return 0.0f; });
        block.sync();
        for (int turn = 0; turn < 4; ++turn) {
            block.each_warp([&](warp& self) {
                if (self.index() != turn) return;
                const float sum = *shared.sums.at(0);
                self.sync();
                *shared.sums.at(0) = sum + static_cast<float>(turn + 1);
            });
            if constexpr (Fixed) block.sync();
        }
        block.sync();
        store(block, args.out.at(0, 0).pointer, 64, shared.sums);
    }
};
HAZARD(shared_tiles, raw_sum_of_all_warps, 1, race)

// A warp reads an element of another warp's rows through a raw pointer, without a sync after the store.
template <bool Fixed>
struct raw_read_after_a_store : hazard_kernel<4> {
    using shared_memory = scratch;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_values values;
            load(self, values, args.in.at(0, 0));
            store(self, shared.values, values);
            if constexpr (Fixed) self.sync();
            const float last = *shared.values.at(63, 31);
            map(self, values, [&](float x) { return x - last; });
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(shared_tiles, raw_read_after_a_store, 1, unsynchronised_scope, race)

struct overlaid {
    overlay<tile, operand, shared_vector<float, 64>> memory;
    transaction_barrier landing;
};

// Two warpgroups use an overlay at once, each as another type.
template <bool Fixed>
struct overlay_of_two_types_at_once : hazard_kernel<8> {
    using shared_memory = overlaid;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.roles(consumers<2>([&](warpgroup& self) {
            if (self.index() == 0) {
                load(self, shared.memory.as<tile>(), args.in.at(0, 0));
                self.sync();
                store(self, args.out.at(0, 0), shared.memory.as<tile>());
                barriers::of<meeting>().arrive(self, 8);
            } else {
                if constexpr (Fixed) barriers::of<meeting>().sync(self, 8);
                load(self, shared.memory.as<operand>(), args.a.at(0, 0));
                if constexpr (!Fixed) barriers::of<meeting>().sync(self, 8);
            }
        }));
    }
};
HAZARD(shared_tiles, overlay_of_two_types_at_once, 1, race)

// The output is staged over an operand that other warps of the group still read.
template <bool Fixed>
struct overlay_reused_without_sync : hazard_kernel<4> {
    using shared_memory = overlaid;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load(block, shared.memory.as<operand>(), args.a.at(0, 0));
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<bf16, 64, 64> values;
            warpgroup_tile<float, 64, 64> wide;
            warpgroup_values output;
            load(self, values, shared.memory.as<operand>());
            convert(self, wide, values);
            output = columns_of<0, 32>(self, wide);
            if constexpr (Fixed) self.sync();
            store(self, shared.memory.as<tile>(), output);
            self.sync();
            store(self, args.out.at(0, 0), shared.memory.as<tile>());
            store(self, args.out.at(64, 0), wide);
        });
    }
};
HAZARD(shared_tiles, overlay_reused_without_sync, 1, unsynchronised_scope)

// A value is put into an overlay while a TMA load of its other type is in flight.
template <bool Fixed>
struct overlay_over_a_landing_tile : hazard_kernel<4> {
    using shared_memory = overlaid;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.memory.as<tile>(), args.in_tensor.tile(0, 0), shared.landing);
            if constexpr (Fixed) shared.landing.wait(self, 0);
            put(self, shared.memory.as<shared_vector<float, 64>>(), 0, 1000.0f);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
            row_tile values;
            load(self, values, shared.memory.as<tile>().subtile<16>(0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(shared_tiles, overlay_over_a_landing_tile, 1, overwritten_in_flight)

}  // namespace
