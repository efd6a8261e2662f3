// A failing schedule is shrunk and replayed.
#include <doctest/doctest.h>

#include <imbrex/hw/world.hpp>
#include <imbrex/imbrex.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace imbrex;

// Warp 1 reads outside of a vector if it tests the flag while warp 0 holds it.
struct window_kernel {
    static constexpr int warps = 2;
    struct arguments {
        int* flag;
        int* counters;
    };
    struct shared_memory {
        shared_vector<int, 4> values;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            const auto pass_time = [&](int steps) {
                for (int i = 0; i < steps; ++i) {
                    atomic_fetch_add<memory_order::relaxed>(self, args.counters + self.index(), 1);
                }
            };
            pass_time(10);
            if (self.index() == 0) {
                atomic_store<memory_order::relaxed>(self, args.flag, 1);
                pass_time(3);
                atomic_store<memory_order::relaxed>(self, args.flag, 0);
            } else if (atomic_load<memory_order::relaxed>(self, args.flag) == 1) {
                hw::get(self, smem.values, 4, source::current());
            }
        });
    }
};

struct window_memory {
    int flag = 0;
    int counters[2] = {};
    window_kernel::arguments arguments() { return {&flag, counters}; }
};

std::optional<hazard> check_window(window_memory& memory, const host::check_options& options, int* runs = nullptr) {
    return host::check<window_kernel>({1}, memory.arguments(), options, [&] {
        memory = {};
        if (runs != nullptr) ++*runs;
    });
}

TEST_CASE("a schedule is shrunk to the fewest preemptions, and the result replays") {
    for (const scheduling scheduler : {scheduling::random, scheduling::pct}) {
        window_memory memory;
        const auto found = check_window(memory, {.schedules = 3000, .scheduler = scheduler, .bug_depth = 2});
        REQUIRE(found);
        CHECK(found->kind == hazard_kind::outside_tile);
        // By default warp 0 runs to its end before warp 1 starts: one preemption of warp 0 between its two stores.
        const replayed_schedule shrunk = replayed_schedule::parse(found->replay);
        CHECK(shrunk.seed == found->seed);
        REQUIRE(shrunk.decisions.size() == 1);
        CHECK(!shrunk.decisions[0].is_late_completion());
        CHECK(found->text().find("or with replay \"" + found->replay + "\": preemptions 1, late completions 0") !=
              std::string::npos);

        // The replay of the report, by a check and by a launch.
        int runs = 0;
        const auto again = check_window(memory, {.replay = found->replay}, &runs);
        CHECK(runs == 1);
        REQUIRE(again);
        CHECK(hw::same_hazard(*again, *found));
        CHECK(again->timeline == found->timeline);
        memory = {};
        CHECK_THROWS_AS(
            host::launch<window_kernel>({1}, memory.arguments(), {.mode = host_mode::checked, .replay = found->replay}),
            hazard_error);
        // Without the preemption there is no hazard.
        CHECK(hazard_text(check_window(memory, {.replay = "0:"})) == "");
    }
}

TEST_CASE("shrinking is bounded and can be turned off") {
    window_memory memory;
    host::check_summary summary;
    int runs = 0;
    const auto plain = check_window(memory, {.schedules = 3000, .shrink_replays = 0, .summary = &summary}, &runs);
    REQUIRE(plain);
    CHECK(plain->replay == "");
    CHECK(runs == summary.schedules);

    runs = 0;
    const auto bounded = check_window(memory, {.schedules = 3000, .shrink_replays = 3, .summary = &summary}, &runs);
    REQUIRE(bounded);
    CHECK(runs <= summary.schedules + 3 + 2);  // and a run to record it, and one for the timeline
    CHECK(bounded->seed == plain->seed);
    CHECK(hazard_text(check_window(memory, {.replay = bounded->replay})) != "");
}

TEST_CASE("a hazard that does not appear again is reported as it was found") {
    window_memory memory;
    int runs = 0;
    const auto once = [&] {
        memory = {};
        ++runs;
        if (runs > 1) throw std::runtime_error("the preparation fails");
    };
    window_memory other;
    std::optional<hazard> expected;
    std::uint64_t seed = 0;
    while (!expected) expected = check_window(other, {.schedules = 1, .first_seed = seed++, .shrink_replays = 0});
    const auto found =
        host::check<window_kernel>({1}, memory.arguments(), {.schedules = 1, .first_seed = seed - 1}, once);
    REQUIRE(found);
    CHECK(runs == 2);
    CHECK(found->text() == expected->text());
}

// Reads outside of a vector if the second copy lands after the first.
using tile = shared_tile<float, 8, 32>;
struct late_kernel {
    static constexpr int warps = 1;
    struct arguments {
        tma_tensor<tile, 2> in;
        int* counter;
    };
    struct shared_memory {
        tile first, second;
        transaction_barrier full[2];
        shared_vector<int, 4> values;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.full[0].init(block, 1);
        smem.full[1].init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            smem.full[0].expect(self, tile::bytes);
            smem.full[1].expect(self, tile::bytes);
            load_async(self, smem.first, args.in.tile(0, 0), smem.full[0]);
            load_async(self, smem.second, args.in.tile(1, 0), smem.full[1]);
            for (int i = 0; i < 3; ++i) atomic_fetch_add<memory_order::relaxed>(self, args.counter, 1);
            const auto landed = [&](int i) { return hw::barrier_counters::of(smem.full[i].word).bytes == 0; };
            const bool late = landed(0) && !landed(1);
            smem.full[0].wait(self, 0);
            smem.full[1].wait(self, 0);
            if (late) hw::get(self, smem.values, 4, source::current());
        });
    }
};

TEST_CASE("late completions that do not matter are removed") {
    std::vector<float> in(16 * 32, 1.0f);
    int counter = 0;
    const auto found = host::check<late_kernel>({1}, {make_tma_tensor<tile>(matrix(in.data(), 16, 32)), &counter});
    REQUIRE(found);
    const replayed_schedule shrunk = replayed_schedule::parse(found->replay);
    REQUIRE(shrunk.decisions.size() == 1);
    CHECK(shrunk.decisions[0].is_late_completion());
    CHECK(shrunk.decisions[0].operation == 1);
    CHECK(found->timeline.find("completes: TMA load") != std::string::npos);
}

// Takes a lock by compare-exchange, and reads outside of a vector if another warp holds it. The lock is never released:
// in the default schedule the second warp would try forever.
struct lock_kernel {
    static constexpr int warps = 2;
    struct arguments {
        int* lock;
        bool* fails;
    };
    struct shared_memory {
        shared_vector<int, 4> values;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            while (atomic_compare_exchange<memory_order::relaxed>(self, args.lock, 0, 1) != 0) {
                if (*args.fails) hw::get(self, smem.values, 4, source::current());
            }
        });
    }
};

TEST_CASE("a replay that would not end is given up") {
    int lock = 0, runs = 0;
    bool fails = true;
    const auto found = host::check<lock_kernel>({1}, {&lock, &fails}, {.schedules = 1}, [&] {
        lock = 0;
        fails = ++runs <= 2;  // the first run, and the one that records it
    });
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::outside_tile);
    CHECK(found->replay == "");
}

TEST_CASE("a stream of launches is shrunk and replayed") {
    window_memory memory;
    const auto work = [&] {
        memory = {};
        launch<window_kernel>(world::host_checked, {1}, memory.arguments());
    };
    const auto found = host::check_launches(work, {.schedules = 3000});
    REQUIRE(found);
    CHECK(replayed_schedule::parse(found->replay).decisions.size() == 1);
    CHECK(hazard_text(host::check_launches(work, {.replay = found->replay})) != "");
}

}  // namespace
