// Hazards of barriers, collectives, scopes, limits and kernel exits: each in a kernel with a plausible mistake, and the
// report that the checker must make.
#include "hw/host/committed.hpp"

namespace hazards {
namespace {

struct shared {
    tile one;
    transaction_barrier landing;
    transaction_barrier second;
};

// One warp with a correctly initialised barrier.
struct alone {
    static constexpr int warps = 1;
    using arguments = hazards::arguments;
    using shared_memory = shared;
    template <class Block>
    static void begin(Block& block, shared_memory& smem) {
        smem.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
    }
};

// A producer warp and a consumer warpgroup around a ring.
struct ring_team {
    static constexpr int warps = 8;
    using arguments = hazards::arguments;
    struct shared_memory {
        pipeline<hazards::tile, 2> ring;
    };
    template <class Block>
    static void begin(Block& block, shared_memory& smem) {
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
    }
};

template <int Bytes>
struct armed_with_other_bytes : ring_team {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.roles(producer([&](warp& self) {
                        note(caught);
                        smem.ring.full[0].expect(self, tile::bytes + Bytes);
                        note(before);
                        load_async(self, smem.ring.items[0], args.in.tile(0, 0), smem.ring.full[0]);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        smem.ring.full[0].wait(self, 0);
                        smem.ring.empty[0].arrive(self);
                    }));
    }
};

TEST_CASE("a barrier that expects more bytes than are copied") {
    const hazard found = expect<armed_with_other_bytes<64>>(hazard_kind::wrong_byte_count);
    check_location(found, caught, "producer", 0);
    check_location(found, before, "producer", 0);
    CHECK(found.detail.find("64 bytes") != std::string::npos);
}

TEST_CASE("a barrier that expects fewer bytes than are copied") {
    const hazard found = expect<armed_with_other_bytes<-64>>(hazard_kind::wrong_byte_count);
    // The copy that lands is caught.
    std::swap(noted_line(caught), noted_line(before));
    check_location(found, caught, "producer", 0);
    check_location(found, before, "producer", 0);
}

struct released_twice : ring_team {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        auto slot = filling.acquire();
                        load_async(self, *slot, args.in.tile(0, 0), slot);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = smem.ring.consumer(self);
                        note(before);
                        auto stage = full.wait();
                        stage.release(source{__FILE__, noted_line(before)});
                        note(caught);
                        smem.ring.empty[0].arrive(self);
                    }));
    }
};
struct more_arrive_than_counted : alone {
    static constexpr int warps = 8;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        smem.landing.init(block, 6);
        fence_barriers(block);
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            note(caught);
            smem.landing.arrive(self);
        });
    }
};

TEST_CASE("a barrier arrived at too often") {
    const hazard found = expect<released_twice>(hazard_kind::arrived_too_often);
    check_location(found, caught, "consumer", 0);
    check_location(found, before, "consumer", 0);
    const hazard counted = expect<more_arrive_than_counted>(hazard_kind::arrived_too_often);
    CHECK(counted.locations[0].line == noted_line(caught));
    CHECK(counted.locations[1].line == noted_line(caught));
    CHECK(counted.locations[0].who != counted.locations[1].who);
}

struct waits_for_the_other_phase : ring_team {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        auto slot = filling.acquire();
                        load_async(self, *slot, args.in.tile(0, 0), slot);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        note(caught);
                        smem.ring.full[0].wait(self, 1);
                        smem.ring.empty[0].arrive(self);
                    }));
    }
};

TEST_CASE("a wait for the wrong phase") {
    const hazard found = expect<waits_for_the_other_phase>(hazard_kind::wrong_phase, {},
                                                           {hazard_kind::incomplete_collective, hazard_kind::deadlock});
    check_location(found, caught, "consumer", 0);
}

// What is missing in a barrier's initialisation.
enum class lacking { init, fence, sync, fence_before_sync };

template <lacking What>
struct badly_set_up : alone {
    static constexpr int warps = 4;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        note(before);
        if (What != lacking::init) smem.landing.init(block, 4);
        if (What != lacking::fence && What != lacking::fence_before_sync) fence_barriers(block);
        if (What != lacking::sync) block.sync();
        if (What == lacking::fence_before_sync) fence_barriers(block);
        block.each_warpgroup([&](warpgroup& self) {
            note(caught);
            smem.landing.arrive(self);
            smem.landing.wait(self, 0);
        });
    }
};

TEST_CASE("a barrier used without complete initialisation") {
    check_location(expect<badly_set_up<lacking::init>>(hazard_kind::barrier_not_initialised), caught, "warpgroup 0");
    for (const hazard& found :
         {expect<badly_set_up<lacking::fence>>(hazard_kind::barrier_not_initialised),
          expect<badly_set_up<lacking::sync>>(hazard_kind::barrier_not_initialised),
          expect<badly_set_up<lacking::fence_before_sync>>(hazard_kind::barrier_not_initialised)}) {
        check_location(found, caught, "warpgroup 0");
        check_location(found, before, "block");
    }
}

struct initialised_in_use : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.each_warp([&](warp& self) {
            note(before);
            smem.landing.expect(self, tile::bytes);
            load_async(self, smem.one, args.in.tile(0, 0), smem.landing);
            note(caught);
            smem.landing.init(self, 1);
        });
    }
};

TEST_CASE("a barrier initialised again while in use") {
    const hazard found = expect<initialised_in_use>(hazard_kind::barrier_not_initialised);
    check_location(found, caught, "warp 0");
    check_location(found, before, "warp 0");
}

struct barrier_of_two_parties : alone {
    static constexpr int warps = 16;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        struct pair {};
        block.each_warpgroup([&](warpgroup& self) {
            // Two pairs of warpgroups share one barrier instead of one each.
            note(caught);
            named_barriers<pair>::template of<pair>().sync(self, 8);
        });
    }
};
struct counts_that_differ : alone {
    static constexpr int warps = 8;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        struct meeting {};
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                note(caught);
                named_barriers<meeting>::template of<meeting>().sync(self, 8);
            } else {
                note(before);
                named_barriers<meeting>::template of<meeting>().sync(self, 12);
            }
        });
    }
};

TEST_CASE("a named barrier used by two groups at once") {
    const hazard found = expect<barrier_of_two_parties>(hazard_kind::named_barrier_conflict);
    CHECK(found.locations[0].line == noted_line(caught));
    CHECK(found.locations[1].line == noted_line(caught));
    CHECK(found.locations[0].who != found.locations[1].who);
    const hazard counts = expect<counts_that_differ>(hazard_kind::named_barrier_conflict);
    const bool first = counts.locations[0].line == noted_line(caught);
    CHECK(counts.locations[0].line == noted_line(first ? caught : before));
    CHECK(counts.locations[1].line == noted_line(first ? before : caught));
    CHECK(counts.detail.find("12") != std::string::npos);
}

struct one_group_leaves : alone {
    static constexpr int warps = 8;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        struct meeting {};
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 1) return;
            note(caught);
            named_barriers<meeting>::template of<meeting>().sync(self, 8);
        });
    }
};
struct producer_leaves_early : ring_team {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        auto slot = filling.acquire();
                        load_async(self, *slot, args.in.tile(0, 0), slot);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = smem.ring.consumer(self);
                        for (int i = 0; i < 2; ++i) {
                            note(caught);
                            auto stage = full.wait();
                        }
                    }));
    }
};
struct some_warps_never_arrive : alone {
    static constexpr int warps = 4;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        note(before);
        smem.landing.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 2) return;
            note(caught);
            smem.landing.arrive(self);
        });
    }
};
// Each warp of the warpgroup tests its own rows: the body must not contain a collective of the warpgroup.
struct some_rows_sync : alone {
    static constexpr int warps = 4;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        block.each_warpgroup([&](warpgroup& self) {
            hw::row_fragment<float, 64, 4> rows;
            fill(self, rows, 1.0f);
            hw::if_any_row(
                self, rows, [](float x) { return x == 1.0f; },
                [&] {
                    fill(self, rows, 2.0f);
                    note(caught);
                    self.sync();
                },
                source::current());
        });
    }
};

TEST_CASE("a collective that not all members reach") {
    const hazard named = expect<one_group_leaves>(hazard_kind::incomplete_collective);
    check_location(named, caught, "warpgroup 0");
    REQUIRE(named.locations.size() == 2);
    CHECK(named.locations[1].text() == "warpgroup 1: has ended");
    CHECK(named.locations[0].what.find("named barrier 9") != std::string::npos);

    const hazard counted = expect<producer_leaves_early>(hazard_kind::incomplete_collective);
    check_location(counted, caught, "consumer");
    CHECK(counted.locations[0].what.find("stage 1") != std::string::npos);
    CHECK(counted.locations[1].text() == "producer: has ended");

    const hazard left = expect<some_warps_never_arrive>(hazard_kind::incomplete_collective);
    check_location(left, caught, "warp 2");
    check_location(left, before, "block");

    const hazard apart = expect<some_rows_sync>(hazard_kind::incomplete_collective);
    check_location(apart, caught, "warpgroup 0");
}

struct role_syncs_the_block : alone {
    static constexpr int warps = 8;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        block.roles(producer([](warp&) {}), consumers<1>([&](warpgroup&) {
                        note(caught);
                        block.sync();
                    }));
    }
};
struct scope_of_another_role : alone {
    static constexpr int warps = 8;
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        struct meeting {};
        const warp* theirs = nullptr;
        block.roles(producer([&](warp& self) {
                        theirs = &self;
                        named_barriers<meeting>::template of<meeting>().sync(self, 5);
                        named_barriers<meeting>::template of<meeting>().sync(self, 5);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        named_barriers<meeting>::template of<meeting>().sync(self, 5);
                        note(caught);
                        fence_async(*theirs);
                        named_barriers<meeting>::template of<meeting>().sync(self, 5);
                    }));
    }
};

TEST_CASE("a collective reached at the wrong scope") {
    check_location(expect<role_syncs_the_block>(hazard_kind::wrong_scope), caught, "consumer");
    const hazard other = expect<scope_of_another_role>(hazard_kind::wrong_scope);
    check_location(other, caught, "consumer");
    CHECK(other.detail.find("producer") != std::string::npos);
}

struct tile_outside : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.each_warp([&](warp& self) {
            smem.landing.expect(self, tile::bytes);
            note(caught);
            load_async(self, smem.one, args.in.tile(8, 0), smem.landing);
            smem.landing.wait(self, 0);
        });
    }
};
struct tile_between_16_bytes : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.each_warp([&](warp& self) {
            smem.landing.expect(self, tile::bytes);
            note(caught);
            load_async(self, smem.one, args.in.at(0, 2), smem.landing);
            smem.landing.wait(self, 0);
        });
    }
};
struct tile_before : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        fill(block, smem.one, 1.0f);
        fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            note(caught);
            store_async(self, args.out.at(-64, 0), smem.one);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
struct store_to_what_is_for_loads : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        fill(block, smem.one, 1.0f);
        fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            note(caught);
            store_async(self, args.in.tile(0, 0), smem.one);
            commit_stores(self);
            wait_stores(self);
        });
    }
};
struct misaligned : alone {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            // Only the check: a misaligned tile cannot be named without undefined behaviour.
            const source here = source::current();
            noted_line(caught) = here.line;
            hw::check_alignment(hw::enter(self, "TMA load", here), smem.one.storage + 16, 1024, "TMA load", here);
        });
    }
};
// A subtile that begins in the middle of the swizzle's pattern of eight rows.
struct part_off_the_pattern {
    static constexpr int warps = 1;
    using arguments = hazards::arguments;
    struct shared_memory {
        shared_tile<tile::element, 2 * tile::rows, tile::columns> larger;
        transaction_barrier landing;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            smem.landing.expect(self, tile::bytes);
            note(caught);
            load_async(self, smem.larger.template subtile<tile::rows>(4), args.in.tile(0, 0), smem.landing);
        });
    }
};
// An operand of mma that begins inside a panel of the swizzle (32 of 96 columns) and reaches into the next one.
struct operand_off_the_panel {
    static constexpr int warps = 4;
    using arguments = hazards::arguments;
    struct shared_memory {
        shared_tile<tile::element, 64, 96> k;
    };
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<tile::element, 64, 96> ones;
            fill(self, ones, tile::element(1.0f));
            store(self, smem.k, ones);
            fence_async(self);
            self.sync();
            warpgroup_tile<float, 64, 48> sums;
            mma_atb(self, sums, smem.k.template subtile<64, 64>(0), smem.k.template subtile<64, 48>(0),
                    accumulation::replace);
            note(caught);
            mma_atb(self, sums, smem.k.template subtile<64, 64>(0), smem.k.template subtile<64, 48>(0, 48),
                    accumulation::replace);
        });
    }
};
struct named_barrier_that_is_none : alone {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        block.each_warp([&](warp& self) {
            note(caught);
            named_barrier{16}.sync(self, 1);
        });
    }
};
struct counts_too_many : alone {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        note(caught);
        smem.landing.init(block, 65);
    }
};
struct barrier_elsewhere : alone {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory&) {
        transaction_barrier local;
        note(caught);
        local.init(block, 1);
    }
};

TEST_CASE("beyond the hardware's limits") {
    check_location(expect<tile_outside>(hazard_kind::beyond_limits), caught, "warp 0");
    check_location(expect<tile_between_16_bytes>(hazard_kind::beyond_limits), caught, "warp 0");
    check_location(expect<tile_before>(hazard_kind::beyond_limits), caught, "warp 0");
    check_location(expect<store_to_what_is_for_loads>(hazard_kind::beyond_limits), caught, "warp 0");
    check_location(expect<misaligned>(hazard_kind::beyond_limits), caught, "warp 0");
    check_location(expect<part_off_the_pattern>(hazard_kind::beyond_limits), caught, "warp 0");
    check_location(expect<operand_off_the_panel>(hazard_kind::beyond_limits), caught, "warpgroup 0");
    check_location(expect<named_barrier_that_is_none>(hazard_kind::beyond_limits), caught, "warp 0");
    check_location(expect<counts_too_many>(hazard_kind::beyond_limits), caught, "block");
    check_location(expect<barrier_elsewhere>(hazard_kind::beyond_limits), caught, "block");
}

struct load_not_waited_for : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.each_warp([&](warp& self) {
            smem.landing.expect(self, tile::bytes);
            note(caught);
            load_async(self, smem.one, args.in.tile(0, 0), smem.landing);
        });
    }
};
template <bool Commit>
struct store_not_waited_for : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        fill(block, smem.one, 1.0f);
        fence_async(block);
        block.sync();
        block.each_warp([&](warp& self) {
            note(caught);
            store_async(self, args.out.tile(0, 0), smem.one);
            if (Commit) commit_stores(self);
        });
    }
};
struct copy_not_waited_for : alone {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        note(caught);
        copy_async(block, smem.one, args.in_view.at(0, 0));
        commit_copies(block);
    }
};
struct mma_not_waited_for {
    static constexpr int warps = 4;
    using arguments = hazards::arguments;
    struct shared_memory {
        operand a;
    };
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        accumulator sum;  // outlives the warpgroup, so that the mma is in flight at exit and not its register tile
        fill(block, smem.a, bf16(1.0f));
        fence_async(block);
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            fill(self, sum, 0.0f);
            note(caught);
            mma_ab_async(self, sum, smem.a, smem.a);
        });
    }
};

TEST_CASE("operations in flight at exit") {
    check_location(expect<load_not_waited_for>(hazard_kind::in_flight_at_exit), caught, "warp 0");
    check_location(expect<store_not_waited_for<true>>(hazard_kind::in_flight_at_exit), caught, "warp 0");
    check_location(expect<store_not_waited_for<false>>(hazard_kind::in_flight_at_exit), caught, "warp 0");
    check_location(expect<copy_not_waited_for>(hazard_kind::in_flight_at_exit), caught, "block");
    check_location(expect<mma_not_waited_for>(hazard_kind::in_flight_at_exit), caught, "warpgroup 0");
}

struct never_releases : ring_team {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < 4; ++i) {
                            note(caught);
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (unsigned i = 0; i < 4; ++i) {
                            note(before);
                            smem.ring.full[i % 2].wait(self, i / 2);
                        }
                    }));
    }
};

TEST_CASE("a deadlock report names where each scope waits and for what") {
    const hazard found = expect<never_releases>(hazard_kind::deadlock);
    check_location(found, caught, "producer");
    check_location(found, before, "consumer");
    CHECK(found.locations[0].what.find("waits for phase 0 of the barrier at byte ") == 0);
    CHECK(found.locations[0].what.find("stage 0") != std::string::npos);
    CHECK(found.locations[1].what.find("waits for phase 1 of the barrier at byte ") == 0);
}

TEST_CASE("plain mode also reports a deadlock") {
    memory mine;
    CHECK_THROWS_AS(host::launch<never_releases>({}, mine.arguments()), hazard_error);
    CHECK_THROWS_AS(host::launch<one_group_leaves>({}, mine.arguments()), hazard_error);
}

template <bool Invalidates>
struct data_over_a_barrier : alone {
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        note(before);
        smem.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        if constexpr (Invalidates) {
            smem.landing.invalidate(block);
            block.sync();
        }
        auto& numbers = *reinterpret_cast<shared_vector<float, 4>*>(&smem.landing);
        block.each_warp([&](warp& self) {
            note(caught);
            put(self, numbers, 1, 1.0f);
        });
    }
};

TEST_CASE("data over a barrier that is in use") {
    const hazard found = expect<data_over_a_barrier<false>>(hazard_kind::race);
    CHECK(found.detail.find("the bytes hold a barrier, at byte ") == 0);
    CHECK(found.locations[0].line == noted_line(caught));
    CHECK(found.locations[1].line == noted_line(before));
    CHECK(!report_of<data_over_a_barrier<true>>(0));
}

// The stage is released conditionally, by a handle that no longer holds it.
template <bool Wanted>
struct conditional_release_without_a_stage : ring_team {
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        begin(block, smem);
        block.roles(producer([&](warp& self) {
                        auto slot = smem.ring.producer(self).acquire();
                        load_async(self, *slot, args.in.tile(0, 0), slot);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto stage = smem.ring.consumer(self).wait();
                        note(before);
                        stage.release_if(true);
                        note(caught);
                        stage.release_if(Wanted);
                    }));
    }
};

TEST_CASE("a conditional release by a handle that holds no stage") {
    const hazard found = expect<conditional_release_without_a_stage<true>>(hazard_kind::used_after_release);
    CHECK(found.detail == "the handle holds no stage");
    CHECK(found.locations[0].line == noted_line(caught));
    CHECK(!report_of<conditional_release_without_a_stage<false>>(0));
    CHECK_THROWS_AS(host::launch<conditional_release_without_a_stage<true>>({1}, memory().arguments()), hazard_error);
}

}  // namespace
}  // namespace hazards
