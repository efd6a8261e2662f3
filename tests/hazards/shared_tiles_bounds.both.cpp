// Subtiles and elements that are not inside their tile or vector. What lies next to them has been written, so only the
// address is wrong.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using row_tile = warp_tile<float, 16, 32>;

struct three_tiles {
    tile before, values, after;
};

// Three neighbouring tiles of the input.
template <class Block>
IMBREX_KERNEL void load_tiles(Block& block, const corpus_arguments& args, three_tiles& shared) {
    load(block, shared.before, args.in.at(0, 0));
    load(block, shared.values, args.in.at(64, 0));
    load(block, shared.after, args.in.at(128, 0));
    block.sync();
}

struct two_operands {
    operand a, b;
};

template <class Block>
IMBREX_KERNEL void load_operands(Block& block, const corpus_arguments& args, two_operands& shared) {
    load(block, shared.a, args.a.at(0, 0));
    load(block, shared.b, args.a.at(64, 0));
    fence_async(block);
    block.sync();
}

// A subtile of sixteen columns begins at column 56 of 64.
template <bool Fixed>
struct subtile_over_the_last_column : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<bf16, 64, 16> values;
            warpgroup_tile<float, 64, 16> wide;
            load(self, values, shared.a.subtile<64, 16>(0, Fixed ? 48 : 56));
            convert(self, wide, values);
            store(self, args.out.at(0, 0), wide);
        });
    }
};
HAZARD(shared_tiles, subtile_over_the_last_column, 1, outside_tile)

// The last warp reads rows beyond its tile.
template <bool Fixed>
struct rows_beyond_the_tile_read : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_tiles(block, args, shared);
        block.each_warp([&](warp& self) {
            row_tile values;
            load(self, values, shared.values.subtile<16>(16 * self.index() + (Fixed ? 0 : 8)));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(shared_tiles, rows_beyond_the_tile_read, 1, outside_tile)

// The last warp writes rows beyond its tile, into the next one.
template <bool Fixed>
struct rows_beyond_the_tile_written : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_tiles(block, args, shared);
        block.each_warp([&](warp& self) {
            row_tile values;
            fill(self, values, 1000.0f);
            store(self, shared.values.subtile<16>(16 * (self.index() + (Fixed ? 0 : 1))), values);
        });
        block.sync();
        store(block, args.out.at(0, 0), shared.values);
        store(block, args.out.at(64, 0), shared.after);
    }
};
HAZARD(shared_tiles, rows_beyond_the_tile_written, 1, outside_tile)

// The first warp takes the rows before its own, which are not inside the tile.
template <bool Fixed>
struct rows_before_the_tile : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_tiles(block, args, shared);
        block.each_warp([&](warp& self) {
            const int above = 16 * self.index() - 16;
            row_tile values;
            load(self, values, shared.values.subtile<16>(Fixed && above < 0 ? 0 : above));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(shared_tiles, rows_before_the_tile, 1, outside_tile)

// A negative column: the subtile begins in the row above.
template <bool Fixed>
struct columns_before_the_tile : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_tiles(block, args, shared);
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, 16> values;
            load(self, values, shared.values.subtile<16, 16>(16 * self.index(), Fixed ? 0 : -8));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(shared_tiles, columns_before_the_tile, 1, outside_tile)

// A subtile of a subtile: both offsets are small enough, their sum is not.
template <bool Fixed>
struct subtile_of_a_subtile_beyond_the_tile : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_tiles(block, args, shared);
        block.each_warp([&](warp& self) {
            const auto lower = shared.values.subtile<32>(32);
            row_tile values;
            load(self, values, lower.template subtile<16>((Fixed ? 4 : 8) * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(shared_tiles, subtile_of_a_subtile_beyond_the_tile, 1, outside_tile)

// cp.async into rows that are not inside the tile.
template <bool Fixed>
struct copy_beyond_the_tile : hazard_kernel<4> {
    using shared_memory = three_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_tiles(block, args, shared);
        copy_async(block, shared.values.subtile<32>(Fixed ? 32 : 48), args.in.at(256, 0));
        commit_copies(block);
        wait_copies(block);
        block.sync();
        store(block, args.out.at(0, 0), shared.values);
        store(block, args.out.at(64, 0), shared.after);
    }
};
HAZARD(shared_tiles, copy_beyond_the_tile, 1, outside_tile)

// The inner dimension of a product reaches over the last column of its operand.
template <bool Fixed>
struct product_of_columns_beyond_the_tile : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 64> sum;
            mma_ab(self, sum, shared.a.subtile<64, 32>(0, Fixed ? 32 : 48), shared.b.subtile<32>(0),
                   accumulation::replace);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
HAZARD(shared_tiles, product_of_columns_beyond_the_tile, 1, outside_tile)

struct two_vectors {
    shared_vector<float, 32> first, second;
};

template <class Block>
IMBREX_KERNEL void fill_vectors(Block& block, two_vectors& shared) {
    fill_indexed(block, shared.first, [](int i) { return static_cast<float>(i); });
    fill_indexed(block, shared.second, [](int i) { return static_cast<float>(100 + i); });
    block.sync();
}

// The last warp puts a value behind the end of the vector, into the next one.
template <bool Fixed>
struct element_put_behind_the_vector : hazard_kernel<4> {
    using shared_memory = two_vectors;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        fill_vectors(block, shared);
        block.each_warp(
            [&](warp& self) { put(self, shared.first, 8 * (self.index() + 1) - (Fixed ? 1 : 0), 1000.0f); });
        block.sync();
        store(block, args.out.at(0, 0).pointer, 32, shared.first);
        store(block, args.out.at(1, 0).pointer, 32, shared.second);
    }
};
HAZARD(shared_tiles, element_put_behind_the_vector, 1, outside_tile)

// The last warp reads the element behind the end of the vector.
template <bool Fixed>
struct element_read_behind_the_vector : hazard_kernel<4> {
    using shared_memory = two_vectors;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        fill_vectors(block, shared);
        block.each_warp([&](warp& self) {
            const float value = get(self, shared.first, 8 * (self.index() + 1) - (Fixed ? 1 : 0));
            put(self, args.out.at(self.index(), 0).pointer, value);
        });
    }
};
HAZARD(shared_tiles, element_read_behind_the_vector, 1, outside_tile)

// A part of a vector reaches over its end.
template <bool Fixed>
struct subvector_beyond_the_vector : hazard_kernel<4> {
    using shared_memory = two_vectors;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        fill_vectors(block, shared);
        block.each_warp([&](warp& self) {
            column_values<float, 16> part;
            load(self, part, shared.first.subtile<16>((Fixed ? 4 : 8) * self.index()));
            store(self, args.out.at(self.index(), 0).pointer, 16, part);
        });
    }
};
HAZARD(shared_tiles, subvector_beyond_the_vector, 1, outside_tile)

}  // namespace
