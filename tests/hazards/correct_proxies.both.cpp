// Correct kernels with unusual use of the two proxies, of asynchronous products, of cp.async and of shared tiles.
#include "hazards/corpus.hpp"

#include <utility>

using namespace imbrex_hazards;

namespace {

using warpgroup_values = warpgroup_tile<float, 64, 32>;
using row_tile = warp_tile<float, 16, 32>;
using accumulator = warpgroup_tile<float, 64, 64>;
using weights = warpgroup_tile<bf16, 64, 64>;

struct staging {
    tile values, others;
    transaction_barrier landing, handed, passed;
};

template <class Block>
IMBREX_KERNEL void init_barriers(Block& block, staging& shared, int handed, int passed) {
    shared.landing.init(block, 1);
    shared.handed.init(block, handed);
    shared.passed.init(block, passed);
    fence_barriers(block);
    block.sync();
}

template <class Scope>
IMBREX_KERNEL void store_tile(Scope& self, const corpus_arguments& args, const tile& from, int number) {
    store_async(self, args.out_tensor.tile(number, 0), from);
    commit_stores(self);
    wait_stores(self);
}

// The writer fences and arrives. A third role that touches nothing passes this on: order and fence are transitive.
struct fenced_writes_passed_on : hazard_kernel<12> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 4, 1);
        block.roles(single_warps<1>("storer",
                                    [&](warp& self) {
                                        shared.passed.wait(self, 0);
                                        store_tile(self, args, shared.values, 0);
                                    }),
                    consumers<1>("writer",
                                 [&](warpgroup& self) {
                                     warpgroup_values values;
                                     load(self, values, args.in.at(0, 0));
                                     store(self, shared.values, values);
                                     fence_async(self);
                                     shared.handed.arrive(self);
                                 }),
                    single_warps<1>("relay", [&](warp& self) {
                        shared.handed.wait(self, 0);
                        shared.passed.arrive(self);
                    }));
    }
};
CORRECT(proxies, fenced_writes_passed_on, 1)

// Data that TMA has loaded may be stored by TMA without a fence: no ordinary access is involved.
struct loaded_and_stored_by_tma : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 1, 1);
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            for (int i = 0; i < 3; ++i) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                shared.landing.wait(self, i);
                store_async(self, args.out_tensor.tile(i, 0), shared.values);
                commit_stores(self);
                wait_stores_read(self);
            }
        });
    }
};
CORRECT(proxies, loaded_and_stored_by_tma, 1)

// Ordinary reads before a TMA load need an order, but no fence: only writes do.
struct refilled_after_reads_without_fence : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 4, 1);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 3; ++i) {
                if (self.index() == 0) {
                    shared.handed.wait(self, i - 1);
                    shared.landing.expect(self, tile::bytes);
                    load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                }
                shared.landing.wait(self, i);
                row_tile values;
                load(self, values, shared.values.subtile<16>(16 * self.index()));
                shared.handed.arrive(self);
                store(self, args.out.at(64 * i + 16 * self.index(), 0), values);
            }
            shared.handed.wait(self, 2);
        });
    }
};
CORRECT(proxies, refilled_after_reads_without_fence, 1)

// A single warp writes, fences and issues the store itself: its lanes are converged, no sync is needed.
struct one_warp_fences_and_stores : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if (self.index() != 1) return;
            for (int i = 0; i < 4; ++i) {
                row_tile values;
                load(self, values, args.in.at(16 * i, 0));
                store(self, shared.values.subtile<16>(16 * i), values);
            }
            fence_async(self);
            store_tile(self, args, shared.values, 0);
        });
    }
};
CORRECT(proxies, one_warp_fences_and_stores, 1)

// One fence covers several writes to two tiles, and the tiles are read by everyone while TMA stores them: reads do not
// conflict.
struct read_while_the_store_reads : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load(block, shared.values, args.in.at(0, 0));
        load(block, shared.others, args.in.at(64, 0));
        fence_async(block);
        block.sync();
        store_async(block, args.out_tensor.tile(0, 0), shared.values);
        store_async(block, args.out_tensor.tile(1, 0), shared.others);
        commit_stores(block);
        store(block, args.out.at(128, 0), shared.values);
        store(block, args.out.at(192, 0), shared.others);
        wait_stores_read(block);
    }
};
CORRECT(proxies, read_while_the_store_reads, 1)

struct full {};
struct drained {};
using barriers = named_barriers<full, drained>;

// Two warpgroups hand one staging tile back and forth over named barriers; the reader of a store also waits for it.
struct staging_tile_in_turns : hazard_kernel<8> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.roles(consumers<2>([&](warpgroup& self) {
            for (int i = 0; i < 3; ++i) {
                if (self.index() == 0) {
                    warpgroup_values values;
                    load(self, values, args.in.at(64 * i, 0));
                    store(self, shared.values, values);
                    fence_async(self);
                    barriers::of<full>().arrive(self, 8);
                    barriers::of<drained>().sync(self, 8);
                } else {
                    barriers::of<full>().sync(self, 8);
                    store_async(self, args.out_tensor.tile(i, 0), shared.values);
                    commit_stores(self);
                    wait_stores_read(self);
                    barriers::of<drained>().arrive(self, 8);
                }
            }
        }));
    }
};
CORRECT(proxies, staging_tile_in_turns, 1)

// A TMA store that has been waited for in full is read back by an ordinary load and by a TMA load.
struct stored_and_read_back : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        init_barriers(block, shared, 1, 1);
        load(block, shared.values, args.in.at(0, 0));
        fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                store_async(self, args.work_tensor.tile(0, 0), shared.values);
                commit_stores(self);
                wait_stores(self);
                shared.handed.arrive(self);
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.others, args.work_tensor.tile(0, 0), shared.landing);
            }
            shared.handed.wait(self, 0);
            const int row = 16 * self.index();
            row_tile values, again;
            load(self, values, args.work.at(row, 0));
            shared.landing.wait(self, 0);
            load(self, again, shared.others.subtile<16>(row));
            store(self, args.out.at(row, 0), values);
            store(self, args.out.at(64 + row, 0), again);
        });
    }
};
CORRECT(proxies, stored_and_read_back, 1)

struct two_operands {
    operand a, b;
    transaction_barrier landing;
};

template <class Block>
IMBREX_KERNEL void load_operands(Block& block, const corpus_arguments& args, two_operands& shared) {
    shared.landing.init(block, 1);
    fence_barriers(block);
    block.sync();
    block.each_warp([&](warp& self) {
        if (self.index() != 0) return;
        shared.landing.expect(self, 2 * operand::bytes);
        load_async(self, shared.a, args.a_tensor.tile(0, 0), shared.landing);
        load_async(self, shared.b, args.a_tensor.tile(1, 0), shared.landing);
    });
}

// Several products in flight add to one accumulator; the first of them replaces it, so it needs no value before.
struct products_share_an_accumulator : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            shared.landing.wait(self, 0);
            mma_ab_async(self, sum, shared.a, shared.b, accumulation::replace);
            mma_ab_async(self, sum, shared.b, shared.a);
            mma_abt_async(self, sum, shared.a, shared.a);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
CORRECT(wgmma_registers, products_share_an_accumulator, 1)

// The older product is complete after a wait that leaves one: its accumulator may be used, also as the operand of the
// next product, while the newer one is in flight.
struct older_result_used_in_flight : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator scores, sum;
            weights left;
            shared.landing.wait(self, 0);
            mma_abt_async(self, scores, shared.a, shared.b, accumulation::replace);
            mma_ab_async(self, sum, shared.a, shared.b, accumulation::replace);
            wait_mma<1>(self, scores);
            map(self, scores, [](float x) { return 0.25f * x; });
            convert(self, left, scores);
            mma_ab_async(self, sum, left, shared.b);
            store(self, args.out.at(64, 0), scores);
            wait_mma(self, sum);
            store(self, args.out.at(0, 0), sum);
        });
    }
};
CORRECT(wgmma_registers, older_result_used_in_flight, 1)

// An operand in registers may be read, and be the operand of a second product, while the first is in flight.
struct register_operand_read_in_flight : hazard_kernel<4> {
    using shared_memory = two_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load_operands(block, args, shared);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator first, second, wide;
            weights left;
            shared.landing.wait(self, 0);
            load(self, left, shared.a);
            mma_ab_async(self, first, left, shared.b, accumulation::replace);
            mma_ab_async(self, second, left, shared.a, accumulation::replace);
            convert(self, wide, left);
            store(self, args.out.at(128, 0), wide);
            wait_mma(self, first);
            wait_mma(self, second);
            store(self, args.out.at(0, 0), first);
            store(self, args.out.at(64, 0), second);
        });
    }
};
CORRECT(wgmma_registers, register_operand_read_in_flight, 1)

// Each stage is held until the product after it has been issued: the wait leaves one product, so the older stage is
// free.
struct stages_released_one_product_late : hazard_kernel<8> {
    struct shared_memory {
        pipeline<operand, 3> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 7; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        fill(self, sum, 0.0f);
                        auto full_stages = shared.ring.consumer(self);
                        auto held = full_stages.wait();
                        mma_ab_async(self, sum, *held, *held);
                        for (int i = 1; i < 7; ++i) {
                            auto next = full_stages.wait();
                            mma_ab_async(self, sum, *next, *next);
                            wait_mma<1>(self);
                            held = std::move(next);
                        }
                        wait_mma(self, sum);
                        store(self, args.out.at(0, 0), sum);
                    }));
    }
};
CORRECT(wgmma_registers, stages_released_one_product_late, 1)

struct operand_or_output {
    overlay<operand, tile> memory;
    transaction_barrier landing;
};

// The output is staged over the operands: the products are waited for, the warps sync, and the writes are fenced.
struct output_staged_over_operands : hazard_kernel<4> {
    using shared_memory = operand_or_output;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, operand::bytes);
            load_async(self, shared.memory.as<operand>(), args.a_tensor.tile(0, 0), shared.landing);
        });
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            shared.landing.wait(self, 0);
            mma_ab(self, sum, shared.memory.as<operand>(), shared.memory.as<operand>(), accumulation::replace);
            for (int i = 0; i < 2; ++i) {
                self.sync();
                const warpgroup_values half = i == 0 ? columns_of<0, 32>(self, sum) : columns_of<32, 32>(self, sum);
                store(self, shared.memory.as<tile>(), half);
                fence_async(self);
                self.sync();
                store_async(self, args.out_tensor.tile(0, i), shared.memory.as<tile>());
                commit_stores(self);
                wait_stores_read(self);
            }
        });
    }
};
CORRECT(shared_tiles, output_staged_over_operands, 1)

// A lane copies over what it has copied itself: it waits for its own copies, so a sync is needed only before others read.
struct copies_over_own_copies : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 2; ++i) {
                copy_async(self, shared.values, args.in.at(64 * i, 0));
                commit_copies(self);
                wait_copies(self);
            }
            self.sync();
            warpgroup_values values;
            load(self, values, shared.values);
            store(self, args.out.at(0, 0), values);
        });
    }
};
CORRECT(cp_async, copies_over_own_copies, 1)

// Groups are committed in another order than they are read: the wait for the newest covers all before it. Empty groups
// keep the count.
struct newest_copy_read_first : hazard_kernel<4> {
    struct shared_memory {
        tile tiles[3];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            commit_copies(self);
            for (int i = 0; i < 3; ++i) {
                copy_async(self, shared.tiles[i], args.in.at(64 * i, 0));
                commit_copies(self);
            }
            commit_copies(self);
            wait_copies<1>(self);
            self.sync();
            for (int i = 2; i >= 0; --i) {
                warpgroup_values values;
                load(self, values, shared.tiles[i]);
                store(self, args.out.at(64 * i, 0), values);
            }
        });
    }
};
CORRECT(cp_async, newest_copy_read_first, 1)

// One role copies the operand by cp.async, waits, fences and arrives; another multiplies it with one loaded by TMA.
struct copied_and_loaded_operands : hazard_kernel<8> {
    struct shared_memory {
        operand a, b;
        transaction_barrier landing, copied;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        shared.copied.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        shared.landing.expect(self, operand::bytes);
                        load_async(self, shared.a, args.a_tensor.tile(0, 0), shared.landing);
                        copy_async(self, shared.b, args.a.at(64, 0));
                        commit_copies(self);
                        wait_copies(self);
                        fence_async(self);
                        shared.copied.arrive(self);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        shared.copied.wait(self, 0);
                        shared.landing.wait(self, 0);
                        mma_ab(self, sum, shared.a, shared.b, accumulation::replace);
                        store(self, args.out.at(0, 0), sum);
                    }));
    }
};
CORRECT(cp_async, copied_and_loaded_operands, 1)

// Operations that distribute a tile in the same way follow each other without a sync; so do a load and a store of the
// same rows by the same warp.
struct same_distribution_without_sync : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        fill(block, shared.values, 1.0f);
        map_indexed(block, shared.values, [](int row, int column, float x) { return x + 32 * row + column; });
        fill(block, shared.others, 2.0f);
        combine(block, shared.values, shared.others, functional::multiply{});
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_values values;
            for (int i = 0; i < 3; ++i) {
                load(self, values, shared.values);
                map(self, values, [](float x) { return x + 1; });
                store(self, shared.values, values);
            }
            self.sync();
            store(self, args.out.at(0, 0), shared.values);
        });
    }
};
CORRECT(shared_tiles, same_distribution_without_sync, 1)

// The warps rotate their rows: each reads the rows of another after a barrier, and writes its own only after the next.
struct rows_rotated_by_warps : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            const int own = 16 * self.index(), next = 16 * ((self.index() + 1) % 4);
            row_tile values;
            load(self, values, args.in.at(own, 0));
            for (int i = 0; i < 3; ++i) {
                store(self, shared.values.subtile<16>(own), values);
                barriers::of<full>().sync(self, 4);
                load(self, values, shared.values.subtile<16>(next));
                barriers::of<full>().sync(self, 4);
            }
            store(self, args.out.at(own, 0), values);
        });
    }
};
CORRECT(shared_tiles, rows_rotated_by_warps, 1)

// A subtile may reach the last row and column of its tile, and a subtile of a subtile too.
struct subtiles_up_to_the_edge : hazard_kernel<4> {
    using shared_memory = staging;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        load(block, shared.values, args.in.at(0, 0));
        block.sync();
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, 8> corner;
            const auto lower = shared.values.subtile<32, 16>(32, 16);
            load(self, corner, lower.template subtile<16, 8>(16, 8));
            store(self, args.out.at(16 * self.index(), 0), corner);
            load(self, corner, shared.values.subtile<16, 8>(16 * self.index(), 24));
            store(self, args.out.at(16 * self.index(), 8), corner);
        });
    }
};
CORRECT(shared_tiles, subtiles_up_to_the_edge, 1)

// Each warp puts into its own elements of a vector without any sync; one barrier orders them before the reader.
struct elements_of_one_vector_by_warps : hazard_kernel<4> {
    struct shared_memory {
        shared_vector<float, 16> sums;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 4; ++i) {
                put(self, shared.sums, 4 * i + self.index(), static_cast<float>(4 * i));
                const float own = get(self, shared.sums, 4 * i + self.index());
                put(self, shared.sums, 4 * i + self.index(), own + static_cast<float>(self.index()));
            }
            if (self.index() != 0) return barriers::of<full>().arrive(self, 4);
            barriers::of<full>().sync(self, 4);
            for (int i = 0; i < 16; ++i) put(self, args.out.at(0, i).pointer, get(self, shared.sums, i));
        });
    }
};
CORRECT(shared_tiles, elements_of_one_vector_by_warps, 1)

}  // namespace
