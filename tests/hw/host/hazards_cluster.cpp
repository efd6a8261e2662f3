// Hazards between the blocks of a cluster: copies and arrivals from one block to the shared memory of another.
#include "hw/host/committed.hpp"

namespace hazards {
namespace {

constexpr grid_dim one_cluster{2, 1, 1};

// Mistakes in a kernel with TMA multicast over a cluster of two.
enum class missing {
    nothing,
    meeting_after_init,
    meeting_at_exit,
    remote_release,
    rank_that_exists,
    rank_to_arrive_at
};

// Each block loads one half of every stage for both blocks.
template <missing What>
struct shared_loads {
    static constexpr int warps = 8;
    static constexpr int cluster = 2;
    using arguments = hazards::arguments;
    struct halves {
        hazards::tile half[2];
    };
    struct shared_memory {
        pipeline<halves, 1, 2> ring;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        const int rank = block.cluster_rank();
        const unsigned blocks = What == missing::rank_that_exists ? 5u : 3u;
        smem.ring.init(block, What == missing::remote_release ? 2 : 4);
        fence_barriers(block);
        if (What == missing::meeting_after_init) {
            block.sync();
        } else {
            block.cluster_sync();
        }
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto slot = filling.acquire();
                            if (What != missing::rank_to_arrive_at) note(caught);
                            load_multicast(self, slot->half[rank], args.in.tile(2 * i + rank, 0), slot, blocks);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        group_rows values;
                        for (unsigned i = 0; i < 3; ++i) {
                            smem.ring.full[0].wait(self, i);
                            if (What == missing::remote_release) note(before);
                            load(self, values, smem.ring.items[0].half[1 - rank]);
                            smem.ring.empty[0].arrive(self);
                            if (What == missing::remote_release) continue;
                            const int other = What == missing::rank_to_arrive_at ? 7 : 1 - rank;
                            note(What == missing::rank_to_arrive_at ? caught : before);
                            smem.ring.empty[0].arrive_at(self, other);
                        }
                    }));
        if (What != missing::meeting_at_exit) block.cluster_sync();
    }
};

TEST_CASE("a correct multicast kernel has no hazard") {
    for (int seed = 0; seed < 50; ++seed) {
        const auto found = report_of<shared_loads<missing::nothing>>(seed, one_cluster);
        INFO((found ? found->text() : std::string()));
        REQUIRE(!found);
    }
}

TEST_CASE("a cluster without a cluster_sync after the initialisation of its barriers") {
    const hazard found =
        expect<shared_loads<missing::meeting_after_init>>(hazard_kind::barrier_not_initialised, one_cluster);
    CHECK(found.locations.size() >= 1);
    // Either block may be early, by a copy or by an arrival.
    CHECK((found.locations[0].what == "TMA load" || found.locations[0].what == "remote barrier arrive"));
}

TEST_CASE("a multicast into a block whose readers have not released the stage") {
    const hazard found = expect<shared_loads<missing::remote_release>>(
        hazard_kind::refilled_before_release, one_cluster,
        {hazard_kind::read_before_landed, hazard_kind::overwritten_in_flight, hazard_kind::arrived_too_often}, 60);
    check_location(found, caught, "producer", 0);
    check_location(found, before, "consumer", 0);
    // A cluster has two producers and two consumers: the report names the block.
    CHECK(found.locations[0].who.starts_with("block "));
    CHECK(found.locations[1].who.starts_with("block "));
}

TEST_CASE("a block that exits while another may still use its shared memory") {
    const hazard found = expect<shared_loads<missing::meeting_at_exit>>(hazard_kind::in_flight_at_exit, one_cluster);
    const hazard_location& arrival = found.locations.back();
    CHECK(arrival.who.ends_with(" of the cluster, consumer"));
    CHECK(arrival.what == "remote barrier arrive");
    CHECK(arrival.line == noted_line(before));
}

TEST_CASE("a cluster rank out of range") {
    check_location(expect<shared_loads<missing::rank_that_exists>>(hazard_kind::beyond_limits, one_cluster), caught,
                   "producer");
    check_location(expect<shared_loads<missing::rank_to_arrive_at>>(hazard_kind::beyond_limits, one_cluster), caught,
                   "consumer");
}

struct one_block_leaves {
    static constexpr int warps = 4;
    static constexpr int cluster = 2;
    using arguments = hazards::arguments;
    template <class Block>
    static void run(Block& block, const arguments&, hw::no_shared_memory&) {
        if (block.cluster_rank() == 1) return;
        note(caught);
        block.cluster_sync();
    }
};

TEST_CASE("a cluster_sync that one block never reaches") {
    const hazard found = expect<one_block_leaves>(hazard_kind::incomplete_collective, one_cluster);
    check_location(found, caught, "block 0 of the cluster");
    REQUIRE(found.locations.size() == 2);
    CHECK(found.locations[1].text() == "block 1 of the cluster: has ended");
}

}  // namespace
}  // namespace hazards
