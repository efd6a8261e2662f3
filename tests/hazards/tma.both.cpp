// TMA loads: expected bytes, coordinates, alignment, and the barrier that a copy lands on.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using row_of_input = shared_vector<float, columns>;

struct one_copy {
    tile values;
    transaction_barrier landing;
};
struct two_copies {
    tile values[2];
    transaction_barrier landing[2];
};
struct tile_and_row {
    tile values;
    row_of_input row;
    transaction_barrier landing;
};

template <class Block>
IMBREX_KERNEL void begin(Block& block, transaction_barrier& landing, int warps = 1) {
    landing.init(block, warps);
    fence_barriers(block);
    block.sync();
}
template <class Block>
IMBREX_KERNEL void begin(Block& block, two_copies& shared) {
    shared.landing[0].init(block, 1);
    shared.landing[1].init(block, 1);
    fence_barriers(block);
    block.sync();
}

IMBREX_KERNEL const row_of_input& row_of(const corpus_arguments& args, int row) {
    return *reinterpret_cast<const row_of_input*>(args.in.at(row, 0).pointer);
}

struct copy_with_signal {
    tile values;
    transaction_barrier landing;
    transaction_barrier signal;
};

// The issuer signals the other warps when it has issued the copy, not when the copy has landed.
template <bool Fixed>
struct signalled_when_issued : hazard_kernel<4> {
    using shared_memory = copy_with_signal;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.signal.init(block, 1);
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
                if constexpr (Fixed) shared.landing.wait(self, 0);
                shared.signal.arrive(self);
                if constexpr (!Fixed) shared.landing.wait(self, 0);
            }
            shared.signal.wait(self, 0);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(tma, signalled_when_issued, 1, read_before_landed)

// Two tiles land on the barrier, which expects the bytes of one.
template <bool Fixed>
struct expects_one_of_two_tiles : hazard_kernel<1> {
    using shared_memory = two_copies;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            shared.landing[0].expect(self, Fixed ? 2 * tile::bytes : tile::bytes);
            load_async(self, shared.values[0], args.in_tensor.tile(0, 0), shared.landing[0]);
            load_async(self, shared.values[1], args.in_tensor.tile(1, 0), shared.landing[0]);
            shared.landing[0].wait(self, 0);
            store(self, args.out.at(64, 0), shared.values[1]);
            store(self, args.out.at(0, 0), shared.values[0]);
        });
    }
};
HAZARD(tma, expects_one_of_two_tiles, 1, wrong_byte_count, read_before_landed)

// A tile over the edge of the tensor: TMA counts the bytes of the whole tile, not of its part in bounds.
template <bool Fixed>
struct expects_only_the_bytes_in_bounds : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            const int first_row = rows - tile::rows / 2;
            shared.landing.expect(self, Fixed ? tile::bytes : tile::bytes / 2);
            load_async(self, shared.values, args.in_tensor.at(first_row, 0), shared.landing);
            shared.landing.wait(self, 0);
            store(self, args.out.at(first_row, 0), shared.values);
        });
    }
};
HAZARD(tma, expects_only_the_bytes_in_bounds, 1, wrong_byte_count, read_before_landed)

// The barrier expects the bytes of the tile, but not those of the bulk copy that lands there too.
template <bool Fixed>
struct bytes_of_an_object_not_expected : hazard_kernel<1> {
    using shared_memory = tile_and_row;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            shared.landing.expect(self, tile::bytes + (Fixed ? row_of_input::bytes : 0));
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            load_object_async(self, shared.row, row_of(args, 64), shared.landing);
            shared.landing.wait(self, 0);
            store(self, args.out.at(0, 0), shared.values);
            store(self, args.out.at(64, 0).pointer, columns, shared.row);
        });
    }
};
HAZARD(tma, bytes_of_an_object_not_expected, 1, wrong_byte_count, read_before_landed)

// Each of four warps expects all bytes instead of a quarter.
template <bool Fixed>
struct every_warp_expects_all_bytes : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing, 4);
        block.each_warp([&](warp& self) {
            shared.landing.expect(self, Fixed ? tile::bytes / 4 : tile::bytes);
            if (self.index() == 0) load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            shared.landing.wait(self, 0);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD_THAT_HANGS(tma, every_warp_expects_all_bytes, 1, wrong_byte_count, deadlock)

struct both_halves {
    tile left, right;
};
struct ring_of_halves {
    pipeline<both_halves, 1> ring;
};

// The producer loads only one of the two tiles of a stage.
template <bool Fixed>
struct stage_loaded_by_half : hazard_kernel<8> {
    using shared_memory = ring_of_halves;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        auto slot = filling.acquire();
                        load_async(self, slot->left, args.in_tensor.tile(0, 0), slot);
                        if constexpr (Fixed) load_async(self, slot->right, args.in_tensor.tile(0, 1), slot);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto stage = full.wait();
                        warpgroup_tile<float, 64, 32> values;
                        load(self, values, stage->left);
                        store(self, args.out.at(0, 0), values);
                    }));
    }
};
HAZARD_THAT_HANGS(tma, stage_loaded_by_half, 1, wrong_byte_count, deadlock)

struct ring_of_two {
    pipeline<tile, 2> ring;
};

// Each of two copies lands on the barrier of the other stage.
template <bool Fixed>
struct lands_on_the_other_stage : hazard_kernel<8> {
    using shared_memory = ring_of_two;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 2; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in_tensor.tile(i, 0), shared.ring.full[Fixed ? i : 1 - i]);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 2; ++i) {
                            auto stage = full.wait();
                            warpgroup_tile<float, 64, 32> values;
                            load(self, values, *stage);
                            store(self, args.out.at(64 * i, 0), values);
                        }
                    }));
    }
};
HAZARD(tma, lands_on_the_other_stage, 1, read_before_landed, wrong_byte_count)

// Two copies on two barriers; the second tile is read after a wait for the first barrier.
template <bool Fixed>
struct waits_for_the_other_copy : hazard_kernel<1> {
    using shared_memory = two_copies;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 2; ++i) {
                shared.landing[i].expect(self, tile::bytes);
                load_async(self, shared.values[i], args.in_tensor.tile(i, 0), shared.landing[i]);
            }
            shared.landing[Fixed ? 1 : 0].wait(self, 0);
            store(self, args.out.at(64, 0), shared.values[1]);
            shared.landing[Fixed ? 0 : 1].wait(self, 0);
            store(self, args.out.at(0, 0), shared.values[0]);
        });
    }
};
HAZARD(tma, waits_for_the_other_copy, 1, read_before_landed)

// A loop that loads tiles 7 and 8 of a tensor of eight.
template <bool Fixed>
struct loads_the_tile_after_the_last : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            for (int i = 6; i < 8; ++i) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(Fixed ? i : i + 1, 0), shared.landing);
                shared.landing.wait(self, i - 6);
                store(self, args.out.at(64 * i, 0), shared.values);
            }
        });
    }
};
HAZARD(tma, loads_the_tile_after_the_last, 1, beyond_limits)

// tile() counts in tiles; it gets a column counted in elements.
template <bool Fixed>
struct column_in_elements_given_as_tiles : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            const int column = tile::columns;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, Fixed ? args.in_tensor.at(0, column) : args.in_tensor.tile(0, column),
                       shared.landing);
            shared.landing.wait(self, 0);
            store(self, args.out.at(0, column), shared.values);
        });
    }
};
HAZARD(tma, column_in_elements_given_as_tiles, 1, beyond_limits)

struct tall_tile {
    shared_tile<float, 128, 32> values;
    transaction_barrier landing;
};

// The part of a larger tile begins inside a swizzle pattern of eight rows.
template <bool Fixed>
struct lands_between_swizzle_patterns : hazard_kernel<1> {
    using shared_memory = tall_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            const int first_row = Fixed ? 8 : 4;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values.subtile<64>(first_row), args.in_tensor.tile(0, 0), shared.landing);
            shared.landing.wait(self, 0);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(first_row));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(tma, lands_between_swizzle_patterns, 1, beyond_limits)

struct wide_tile {
    shared_tile<float, 64, 64> values;
    transaction_barrier landing;
};

// The part of a wider tile begins in the middle of a panel of 32 columns.
template <bool Fixed>
struct lands_across_two_panels : hazard_kernel<1> {
    using shared_memory = wide_tile;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            const int first_column = Fixed ? 32 : 16;
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values.subtile<64, 32>(0, first_column), args.in_tensor.tile(0, 0), shared.landing);
            shared.landing.wait(self, 0);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16, 32>(0, first_column));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(tma, lands_across_two_panels, 1, beyond_limits)

struct ring_and_neighbour {
    pipeline<tile, 1> ring;
    tile neighbour;
};

// The copy of 64 rows begins at row 8 of a tile of 64 rows and overwrites what follows the tile.
template <bool Fixed>
struct rows_loaded_past_the_tile : hazard_kernel<8> {
    using shared_memory = ring_and_neighbour;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        fence_barriers(block);
        fill(block, shared.neighbour, 1.0f);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        auto slot = filling.acquire();
                        load_rows_async(self, *slot, Fixed ? 0 : 8, args.in_tensor.tile(0, 0), slot);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto stage = full.wait();
                        warpgroup_tile<float, 64, 32> values;
                        load(self, values, *stage);
                        store(self, args.out.at(0, 0), values);
                        load(self, values, shared.neighbour);
                        store(self, args.out.at(64, 0), values);
                    }));
    }
};
HAZARD(tma, rows_loaded_past_the_tile, 1, beyond_limits, outside_tile)

// A second load into a tile whose first load has not landed.
template <bool Fixed>
struct two_loads_into_one_tile : hazard_kernel<1> {
    using shared_memory = two_copies;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared);
        block.each_warp([&](warp& self) {
            shared.landing[0].expect(self, tile::bytes);
            load_async(self, shared.values[0], args.in_tensor.tile(0, 0), shared.landing[0]);
            if constexpr (Fixed) shared.landing[0].wait(self, 0);
            shared.landing[1].expect(self, tile::bytes);
            load_async(self, shared.values[0], args.in_tensor.tile(1, 0), shared.landing[1]);
            if constexpr (!Fixed) shared.landing[0].wait(self, 0);
            shared.landing[1].wait(self, 0);
            store(self, args.out.at(0, 0), shared.values[0]);
        });
    }
};
HAZARD(tma, two_loads_into_one_tile, 1, overwritten_in_flight, race)

// The tile is cleared after its load was issued.
template <bool Fixed>
struct cleared_after_the_load_was_issued : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            if constexpr (Fixed) {
                fill(self, shared.values, 0.0f);
                fence_async(self);
            }
            shared.landing.expect(self, tile::bytes);
            load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            if constexpr (!Fixed) fill(self, shared.values, 0.0f);
            shared.landing.wait(self, 0);
            store(self, args.out.at(0, 0), shared.values);
        });
    }
};
HAZARD(tma, cleared_after_the_load_was_issued, 1, overwritten_in_flight)

struct row_with_release {
    row_of_input row;
    transaction_barrier landing;
    transaction_barrier released;
};

// The next bulk copy overwrites a vector that the other warps may still read.
template <bool Fixed>
struct row_reloaded_while_read : hazard_kernel<4> {
    using shared_memory = row_with_release;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.released.init(block, 4);
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            for (unsigned i = 0; i < 3; ++i) {
                if (Fixed && i > 0) shared.released.wait(self, i - 1);
                if (self.index() == 0) {
                    shared.landing.expect(self, row_of_input::bytes);
                    load_object_async(self, shared.row, row_of(args, i), shared.landing);
                }
                shared.landing.wait(self, i);
                store(self, args.out.at(4 * i + self.index(), 0).pointer, columns, shared.row);
                if (Fixed) shared.released.arrive(self);
            }
        });
    }
};
HAZARD(tma, row_reloaded_while_read, 1, refilled_before_release, read_before_landed, wrong_phase)

// TMA loads global memory that this warp has just written by ordinary stores: the other proxy, without a fence.
template <bool Fixed>
struct tma_load_of_ordinary_global_writes : hazard_kernel<1> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        begin(block, shared.landing);
        block.each_warp([&](warp& self) {
            for (int row = 0; row < tile::rows; row += 16) {
                warp_tile<float, 16, 32> values;
                load(self, values, args.in.at(row, 0));
                store(self, args.work.at(row, 0), values);
            }
            self.sync();
            if constexpr (Fixed) {
                load(self, shared.values, args.work.at(0, 0));
            } else {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.work_tensor.tile(0, 0), shared.landing);
                shared.landing.wait(self, 0);
            }
            store(self, args.out.at(0, 0), shared.values);
        });
    }
};
HAZARD(tma, tma_load_of_ordinary_global_writes, 1, missing_proxy_fence)

}  // namespace
