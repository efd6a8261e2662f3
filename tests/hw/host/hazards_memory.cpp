// Hazards of shared memory and registers: each in a kernel with a plausible mistake, and the report that the checker
// must make: the kind, both lines, the scope, the stage, and the same again from the seed.
#include "hw/host/committed.hpp"

namespace hazards {
namespace {

// One warp that copies through its own barrier.
struct alone {
    static constexpr int warps = 1;
    using arguments = hazards::arguments;
    struct shared_memory {
        hazards::tile tile;
        transaction_barrier landing;
    };
    template <class Block>
    static void begin(Block& block, shared_memory& smem) {
        smem.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
    }
};

// A producer warp and consumer warpgroups.
template <int Consumers>
struct team {
    static constexpr int warps = 4 + 4 * Consumers;
    using arguments = hazards::arguments;
};

// Two warpgroups with operands that were loaded and waited for.
struct mma_pair {
    static constexpr int warps = 8;
    using arguments = hazards::arguments;
    struct shared_memory {
        operand a, b;
        hazards::tile tile;
        transaction_barrier landing;
    };
    template <class Block>
    static void begin(Block& block, const arguments& args, shared_memory& smem) {
        smem.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        smem.landing.expect(self, 2 * operand::bytes);
                        load_async(self, smem.a, args.operands.tile(0, 0), smem.landing);
                        load_async(self, smem.b, args.operands.tile(1, 0), smem.landing);
                    }),
                    consumers<1>([&](warpgroup& self) { smem.landing.wait(self, 0); }));
        block.sync();
    }
};

struct read_without_wait : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.each_warp([&](warp& self) {
            rows values;
            smem.landing.expect(self, tile::bytes);
            note(before);
            load_async(self, smem.tile, args.in.tile(0, 0), smem.landing);
            note(caught);
            load(self, values, smem.tile.subtile<16>(0));
            smem.landing.wait(self, 0);
        });
    }
};

TEST_CASE("a tile read before its copy has landed") {
    const hazard found = expect<read_without_wait>(hazard_kind::read_before_landed);
    check_location(found, caught, "warp 0");
    check_location(found, before, "warp 0");
}

struct consumer_does_not_wait : team<1> {
    struct shared_memory {
        pipeline<hazards::tile, 2> ring;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < 2; ++i) {
                            auto slot = filling.acquire();
                            note(before);
                            load_async(self, *slot, args.in.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        group_rows values;
                        auto full = smem.ring.consumer(self);
                        auto stage = full.wait();
                        // The second stage, but only the first was waited for.
                        note(caught);
                        load(self, values, smem.ring.items[1]);
                    }));
    }
};

TEST_CASE("a stage of a pipeline read without a wait") {
    const hazard found =
        expect<consumer_does_not_wait>(hazard_kind::read_before_landed, {}, {hazard_kind::uninitialised_read});
    check_location(found, caught, "consumer", 1);
    check_location(found, before, "producer", 1);
}

struct copy_read_without_wait : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            rows values;
            note(before);
            copy_async(self, smem.tile, args.in_view.at(0, 0));
            commit_copies(self);
            note(caught);
            load(self, values, smem.tile.subtile<16>(0));
            wait_copies(self);
        });
    }
};

TEST_CASE("a tile read before its cp.async has been waited for") {
    const hazard found = expect<copy_read_without_wait>(hazard_kind::read_before_landed);
    check_location(found, caught, "warp 0");
    check_location(found, before, "warp 0");
}

struct released_too_early : team<1> {
    struct shared_memory {
        pipeline<hazards::tile, 1> ring;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto slot = filling.acquire();
                            note(caught);
                            load_async(self, *slot, args.in.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        group_rows values;
                        for (unsigned i = 0; i < 3; ++i) {
                            smem.ring.full[0].wait(self, i);
                            smem.ring.empty[0].arrive(self);
                            note(before);
                            load(self, values, smem.ring.items[0]);
                        }
                    }));
    }
};

TEST_CASE("a stage refilled before its release") {
    const hazard found =
        expect<released_too_early>(hazard_kind::refilled_before_release, {}, {hazard_kind::read_before_landed});
    check_location(found, caught, "producer", 0);
    check_location(found, before, "consumer", 0);
}

struct released_with_mma_in_flight : team<1> {
    struct shared_memory {
        pipeline<operand, 1> ring;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto slot = filling.acquire();
                            note(caught);
                            load_async(self, *slot, args.operands.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        fill(self, sum, 0.0f);
                        auto full = smem.ring.consumer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto stage = full.wait();
                            note(before);
                            mma_ab_async(self, sum, *stage, *stage);
                        }
                        wait_mma(self);
                    }));
    }
};

TEST_CASE("a stage released, and refilled, while an mma still reads it") {
    const hazard found = expect<released_with_mma_in_flight>(hazard_kind::overwritten_in_flight);
    check_location(found, caught, "producer", 0);
    check_location(found, before, "consumer", 0);
}

struct result_over_operand : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        warpgroup_tile<bf16, 64, 64> out;
                        fill(self, sum, 0.0f);
                        fill(self, out, bf16(0.0f));
                        note(before);
                        mma_ab_async(self, sum, smem.a, smem.b);
                        note(caught);
                        store(self, smem.b, out);
                        wait_mma(self);
                    }));
    }
};

TEST_CASE("the operand of an mma in flight overwritten") {
    const hazard found = expect<result_over_operand>(hazard_kind::overwritten_in_flight);
    check_location(found, caught, "consumer");
    check_location(found, before, "consumer");
}

struct result_over_operand_of_another : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(consumers<2>([&](warpgroup& self) {
            accumulator sum;
            warpgroup_tile<bf16, 64, 64> out;
            fill(self, sum, 0.0f);
            fill(self, out, bf16(0.0f));
            if (self.index() == 0) {
                note(before);
                mma_ab(self, sum, smem.a, smem.b);
            } else {
                note(caught);
                store(self, smem.b, out);
            }
        }));
    }
};

TEST_CASE("the operand of another warpgroup's mma overwritten") {
    const hazard found = expect<result_over_operand_of_another>(hazard_kind::overwritten_in_flight, {},
                                                                {hazard_kind::race, hazard_kind::missing_proxy_fence});
    check_location(found, caught, "consumer 1");
    check_location(found, before, "consumer 0");
}

struct result_over_operand_before_the_warps_met : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        warpgroup_tile<bf16, 64, 64> out;
                        fill(self, sum, 0.0f);
                        fill(self, out, bf16(0.0f));
                        note(before);
                        mma_ab(self, sum, smem.a, smem.b);
                        note(caught);
                        store(self, smem.b, out);
                    }));
    }
};

TEST_CASE("an operand overwritten that other warps of the warpgroup may still multiply") {
    const hazard found = expect<result_over_operand_before_the_warps_met>(hazard_kind::unsynchronised_scope);
    check_location(found, caught, "consumer");
    check_location(found, before, "consumer");
}

struct store_source_overwritten : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() != 0) return;
            group_rows values;
            fill(self, values, 1.0f);
            store(self, smem.tile, values);
            fence_async(self);
            self.sync();
            note(before);
            store_async(self, args.out.tile(0, 0), smem.tile);
            commit_stores(self);
            note(caught);
            store(self, smem.tile, values);
            wait_stores_read(self);
        });
    }
};

TEST_CASE("the source of a TMA store overwritten before it was read") {
    const hazard found = expect<store_source_overwritten>(hazard_kind::overwritten_in_flight);
    check_location(found, caught, "warpgroup 0");
    check_location(found, before, "warpgroup 0");
}

struct accumulator_touched : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.each_warpgroup([&](warpgroup& self) {
            accumulator sum;
            fill(self, sum, 0.0f);
            note(before);
            mma_ab_async(self, sum, smem.a, smem.b);
            note(caught);
            map(self, sum, [](float x) { return 2 * x; });
            wait_mma(self);
        });
    }
};

TEST_CASE("an accumulator accessed while its mma is in flight") {
    const hazard found = expect<accumulator_touched>(hazard_kind::accumulator_in_flight);
    CHECK(found.locations[0].who.find("warpgroup") == 0);
    check_location(found, caught, found.locations[0].who);
    check_location(found, before, found.locations[0].who);
}

struct register_operand_modified : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        warpgroup_tile<bf16, 64, 64> weights;
                        fill(self, sum, 0.0f);
                        fill(self, weights, bf16(1.0f));
                        note(before);
                        mma_ab_async(self, sum, weights, smem.b);
                        const warpgroup_tile<bf16, 64, 64> copy = weights;  // reading it is allowed
                        note(caught);
                        fill(self, weights, bf16(0.0f));
                        wait_mma(self);
                        store(self, smem.a, copy);
                    }));
    }
};

TEST_CASE("a register operand modified while its mma is in flight") {
    const hazard found = expect<register_operand_modified>(hazard_kind::accumulator_in_flight);
    check_location(found, caught, "consumer");
    check_location(found, before, "consumer");
}

struct accumulator_as_operand : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup& self) {
                        accumulator sum, second;
                        warpgroup_tile<bf16, 64, 64> weights;
                        fill(self, sum, 0.0f);
                        fill(self, second, 0.0f);
                        fill(self, weights, bf16(1.0f));
                        note(before);
                        mma_ab_async(self, sum, weights, smem.b);
                        mma_ab_async(self, sum, smem.a, smem.b);  // an accumulator may be shared
                        note(caught);
                        convert(self, weights, sum);
                        wait_mma(self);
                    }));
    }
};

TEST_CASE("an accumulator converted for the next mma before it was waited for") {
    const hazard found = expect<accumulator_as_operand>(hazard_kind::accumulator_in_flight);
    CHECK(found.locations[0].line == noted_line(caught));
    CHECK(found.locations[1].line == noted_line(before) + 1);  // the latest mma that uses it
}

struct accumulator_ends_in_flight : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup& self) {
                        {
                            accumulator sum;
                            fill(self, sum, 0.0f);
                            note(before);
                            mma_ab_async(self, sum, smem.a, smem.b);
                        }
                        wait_mma(self);
                    }));
    }
};

TEST_CASE("an accumulator that ends while its mma is in flight") {
    const hazard found = expect<accumulator_ends_in_flight>(hazard_kind::accumulator_in_flight);
    check_location(found, before, "consumer");
    CHECK(found.locations[0].what == "end of the tile");
}

struct accumulator_copied_in_flight : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        fill(self, sum, 0.0f);
                        note(before);
                        mma_ab_async(self, sum, smem.a, smem.b);
                        accumulator copy = sum;
                        wait_mma(self);
                        map(self, copy, [](float x) { return x; });
                    }));
    }
};

TEST_CASE("an accumulator copied while its mma is in flight") {
    const hazard found = expect<accumulator_copied_in_flight>(hazard_kind::accumulator_in_flight);
    check_location(found, before, "consumer");
    CHECK(found.locations[0].what == "copy of the tile");
}

// The synchronisation between the ordinary writes of a tile and the TMA store that reads it.
enum class standing_between { sync_only, fence_only, sync_then_fence, fence_then_sync };

template <standing_between Between>
struct written_then_stored : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() != 0) return;
            group_rows values;
            fill(self, values, 1.0f);
            note(before);
            store(self, smem.tile, values);
            if (Between == standing_between::fence_only || Between == standing_between::fence_then_sync) {
                fence_async(self);
            }
            if (Between != standing_between::fence_only) self.sync();
            if (Between == standing_between::sync_then_fence) fence_async(self);
            note(caught);
            store_async(self, args.out.tile(0, 0), smem.tile);
            commit_stores(self);
            wait_stores(self);
        });
    }
};

TEST_CASE("ordinary writes read by a TMA store without the proxy fence") {
    const auto check = [](const hazard& found) {
        check_location(found, caught, "warpgroup 0");
        check_location(found, before, "warpgroup 0");
    };
    check(expect<written_then_stored<standing_between::sync_only>>(hazard_kind::missing_proxy_fence));
    // A fence after the sync is in the wrong warps: each must fence its own writes before the sync.
    check(expect<written_then_stored<standing_between::sync_then_fence>>(hazard_kind::missing_proxy_fence));
    check(expect<written_then_stored<standing_between::fence_only>>(hazard_kind::unsynchronised_scope));
    CHECK(!report_of<written_then_stored<standing_between::fence_then_sync>>(0));
}

template <bool FenceAfterBarrier>
struct written_then_multiplied : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        struct handed {};
        using barriers = named_barriers<handed>;
        block.roles(consumers<2>([&](warpgroup& self) {
            if (self.index() == 0) {
                warpgroup_tile<bf16, 64, 64> values;
                fill(self, values, bf16(1.0f));
                note(before);
                store(self, smem.a, values);
                barriers::template of<handed>().arrive(self, 8);
            } else {
                accumulator sum;
                fill(self, sum, 0.0f);
                barriers::template of<handed>().sync(self, 8);
                if (FenceAfterBarrier) fence_async(self);
                note(caught);
                mma_ab(self, sum, smem.a, smem.a);
            }
        }));
    }
};

TEST_CASE("ordinary writes of another group read by wgmma without the proxy fence") {
    const auto check = [](const hazard& found) {
        check_location(found, caught, "consumer 1");
        check_location(found, before, "consumer 0");
    };
    check(expect<written_then_multiplied<false>>(hazard_kind::missing_proxy_fence));
    check(expect<written_then_multiplied<true>>(hazard_kind::missing_proxy_fence));
}

struct unfenced_copies_multiplied : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() != 0) return;
            accumulator sum;
            fill(self, sum, 0.0f);
            const matrix_view<bf16> view = matrix(args.operands.pointer, 8 * 64, 64);
            note(before);
            copy_async(self, smem.a, view.at(0, 0));
            commit_copies(self);
            wait_copies(self);
            self.sync();
            note(caught);
            mma_ab(self, sum, smem.a, smem.a);
        });
    }
};

TEST_CASE("data written by cp.async read by wgmma without the proxy fence") {
    const hazard found = expect<unfenced_copies_multiplied>(hazard_kind::missing_proxy_fence);
    check_location(found, caught, "warpgroup 0");
    check_location(found, before, "warpgroup 0");
}

struct two_groups_write : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        block.roles(consumers<2>([&](warpgroup& self) {
            group_rows values;
            fill(self, values, 1.0f);
            note(caught);
            store(self, smem.tile, values);
        }));
    }
};

TEST_CASE("a race between two warpgroups on the same bytes") {
    const hazard found = expect<two_groups_write>(hazard_kind::race);
    CHECK(found.locations[0].line == noted_line(caught));
    CHECK(found.locations[1].line == noted_line(caught));
    CHECK(found.locations[0].who != found.locations[1].who);
}

struct producer_overwrites_without_barrier : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        smem.landing.expect(self, tile::bytes);
                        note(caught);
                        load_async(self, smem.tile, args.in.tile(0, 0), smem.landing);
                        smem.landing.wait(self, 0);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        group_rows values;
                        fill(self, values, 1.0f);
                        note(before);
                        store(self, smem.tile, values);
                    }));
    }
};

TEST_CASE("a race between a copy and ordinary writes") {
    const hazard found =
        expect<producer_overwrites_without_barrier>(hazard_kind::race, {}, {hazard_kind::overwritten_in_flight});
    check_location(found, caught, "producer");
    check_location(found, before, "consumer");
}

struct filled_then_stored_without_sync : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        note(before);
        fill(block, smem.tile, 1.0f);
        map(block, smem.tile, [](float x) { return x + 1; });  // the same threads, the same elements: allowed
        noted_line(before) += 1;
        note(caught);
        store(block, args.out_view.at(0, 0), smem.tile);
    }
};

TEST_CASE("the warps of a block read each other's writes without a sync") {
    const hazard found = expect<filled_then_stored_without_sync>(hazard_kind::unsynchronised_scope);
    check_location(found, caught, "block");
    check_location(found, before, "block");
}

struct role_reads_unsynced : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        note(before);
        load(block, smem.tile, args.in_view.at(0, 0));
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            rows values;
            note(caught);
            load(self, values, smem.tile.subtile<16>(0));
        });
    }
};
struct role_reads_copies_unsynced : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        note(before);
        copy_async(block, smem.tile, args.in_view.at(0, 0));
        commit_copies(block);
        wait_copies(block);
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            rows values;
            note(caught);
            load(self, values, smem.tile.subtile<16>(0));
        });
    }
};

TEST_CASE("a role reads the writes of its block without a block sync") {
    const auto check = [](const hazard& found) {
        check_location(found, caught, "warp 0");
        check_location(found, before, "block");
    };
    check(expect<role_reads_unsynced>(hazard_kind::unsynchronised_scope));
    check(expect<role_reads_copies_unsynced>(hazard_kind::unsynchronised_scope));
}

struct block_reads_unsynced : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() != 0) return;
            group_rows values;
            fill(self, values, 1.0f);
            note(before);
            store(self, smem.tile, values);
        });
        note(caught);
        store(block, args.out_view.at(0, 0), smem.tile);
    }
};

TEST_CASE("a block reads the writes of its roles without a sync") {
    const hazard found = expect<block_reads_unsynced>(hazard_kind::unsynchronised_scope);
    check_location(found, caught, "block");
    check_location(found, before, "warpgroup 0");
}

struct copies_waited_for_but_not_met : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() != 0) return;
            group_rows values;
            note(before);
            copy_async(self, smem.tile, args.in_view.at(0, 0));
            commit_copies(self);
            wait_copies(self);
            note(caught);
            load(self, values, smem.tile);
        });
    }
};

TEST_CASE("each warp has waited for its own part of a copy and reads another's") {
    const hazard found = expect<copies_waited_for_but_not_met>(hazard_kind::unsynchronised_scope);
    check_location(found, caught, "warpgroup 0");
    check_location(found, before, "warpgroup 0");
}

struct lanes_waited_but_not_met : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            rows values;
            note(before);
            copy_async(self, smem.tile, args.in_view.at(0, 0));
            commit_copies(self);
            wait_copies(self);
            note(caught);
            load(self, values, smem.tile.subtile<16>(0));
        });
    }
};
struct lanes_copy_over_what_others_read : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            rows values;
            copy_async(self, smem.tile, args.in_view.at(0, 0));
            commit_copies(self);
            wait_copies(self);
            self.sync();
            note(before);
            load(self, values, smem.tile.subtile<16>(0));
            note(caught);
            copy_async(self, smem.tile, args.in_view.at(0, 0));
            commit_copies(self);
            wait_copies(self);
        });
    }
};
// The same with all syncs, and copies of a lane over its own data.
struct lanes_that_meet : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 2; ++i) {
                rows values;
                copy_async(self, smem.tile, args.in_view.at(0, 0));
                commit_copies(self);
                wait_copies(self);
                copy_async(self, smem.tile, args.in_view.at(0, 0));
                commit_copies(self);
                wait_copies(self);
                self.sync();
                load(self, values, smem.tile.subtile<16>(0));
                self.sync();
            }
        });
    }
};

TEST_CASE("each lane has waited for its own part of a copy and reads another's") {
    const hazard found = expect<lanes_waited_but_not_met>(hazard_kind::unsynchronised_scope);
    check_location(found, caught, "warp 0");
    check_location(found, before, "warp 0");
}

TEST_CASE("a lane copies over data that other lanes of its warp may still read") {
    const hazard found = expect<lanes_copy_over_what_others_read>(hazard_kind::unsynchronised_scope);
    check_location(found, caught, "warp 0");
    check_location(found, before, "warp 0");
}

TEST_CASE("a warp that syncs its lanes has no hazard") {
    for (int seed = 0; seed < 50; ++seed) {
        const auto found = report_of<lanes_that_meet>(seed);
        INFO((found ? found->text() : std::string()));
        REQUIRE(!found);
    }
}

struct shared_uninitialised : alone {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            rows values;
            note(caught);
            load(self, values, smem.tile.subtile<16>(16));
        });
    }
};
struct registers_uninitialised : alone {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        block.each_warp([&](warp& self) {
            rows values;
            note(caught);
            map(self, values, [](float x) { return x; });
        });
    }
};
struct accumulator_uninitialised : mma_pair {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, args, smem);
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup& self) {
                        accumulator sum;
                        note(caught);
                        mma_ab(self, sum, smem.a, smem.b);
                    }));
    }
};

TEST_CASE("an uninitialised read") {
    const hazard shared = expect<shared_uninitialised>(hazard_kind::uninitialised_read);
    check_location(shared, caught, "warp 0");
    CHECK(shared.detail == str_cat("shared bytes ", 16 * 32 * 4, " to ", 32 * 32 * 4 - 1));
    check_location(expect<registers_uninitialised>(hazard_kind::uninitialised_read), caught, "warp 0");
    check_location(expect<accumulator_uninitialised>(hazard_kind::uninitialised_read), caught, "consumer");
}

}  // namespace
}  // namespace hazards
