// The simulator of the host world: schedules from seeds, exceptions, nested launches, many blocks, and invalid
// launches.
#include <doctest/doctest.h>

#include <imbrex/imbrex.hpp>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace imbrex;

host_options with_seed(std::uint64_t seed) {
    host_options options;
    options.mode = host_mode::checked;
    options.seed = seed;
    return options;
}

// Records which warp runs after each pause.
struct order_kernel {
    static constexpr int warps = 4;
    struct arguments {
        int* counter;
        std::vector<int>* log;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, hw::no_shared_memory&) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 5; ++i) {
                hw::fetch_increment(self, args.counter, source::current());
                args.log->push_back(self.index());
            }
        });
    }
};

std::vector<int> order_of(std::uint64_t seed) {
    int counter = 0;
    std::vector<int> log;
    host::launch<order_kernel>({1}, {&counter, &log}, with_seed(seed));
    CHECK(counter == 20);
    return log;
}

TEST_CASE("a seed gives the same schedule every time, and seeds give different ones") {
    std::set<std::vector<int>> orders;
    for (int seed = 0; seed < 40; ++seed) {
        const std::vector<int> once = order_of(seed);
        CHECK(once == order_of(seed));
        orders.insert(once);
    }
    CHECK(orders.size() > 30);
}

using tile = shared_tile<float, 64, 32>;
using operand = shared_tile<bf16, 64, 64>;

// Throws while a stage is held, an mma is in flight and others wait.
struct throwing_kernel {
    static constexpr int warps = 12;
    struct arguments {
        tma_tensor<operand, 2> in;
        bool throws;
    };
    struct shared_memory {
        pipeline<operand, 1> ring;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 8);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        const std::vector<int> owned(100, 1);
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in.tile(i, 0), slot);
                        }
                    }),
                    consumers<2>([&](warpgroup& self) {
                        const std::vector<int> owned(100, 1);
                        auto full = smem.ring.consumer(self);
                        for (int i = 0; i < 4; ++i) {
                            warpgroup_tile<float, 64, 64> sum;
                            fill(self, sum, 0.0f);
                            auto stage = full.wait();
                            mma_ab_async(self, sum, *stage, *stage);
                            if (args.throws && i == 2 && self.index() == 1)
                                throw std::runtime_error("the kernel's own");
                            wait_mma(self);
                        }
                    }));
    }
};

TEST_CASE("an exception from the kernel propagates out of the launch") {
    std::vector<bf16> in(4 * 64 * 64, bf16(1.0f));
    const auto tensor = make_tma_tensor<operand>(matrix(in.data(), 4 * 64, 64));
    CHECK_THROWS_WITH_AS(host::launch<throwing_kernel>({3}, {tensor, true}), "the kernel's own", std::runtime_error);
    for (int seed = 0; seed < 20; ++seed) {
        CHECK_THROWS_WITH_AS(host::launch<throwing_kernel>({1}, {tensor, true}, with_seed(seed)), "the kernel's own",
                             std::runtime_error);
    }
    // The next launch is unaffected.
    host::launch<throwing_kernel>({3}, {tensor, false});
    CHECK(!host::check<throwing_kernel>({1}, {tensor, false}, 20));
}

TEST_CASE("a hazard ends all simulated warps, and the next launch is unaffected") {
    std::vector<bf16> in(4 * 64 * 64, bf16(1.0f));
    const auto tensor = make_tma_tensor<operand>(matrix(in.data(), 2 * 64, 64));  // the third tile is out of bounds
    const auto found = host::check<throwing_kernel>({1}, {tensor, false}, 5);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::beyond_limits);
    CHECK(order_of(3) == order_of(3));
}

TEST_CASE("rejects operations outside of a kernel") {
    warpgroup_tile<float, 64, 32> values;
    hw::simulated_warp unused;
    const warpgroup group{&unused, 0};
    try {
        fill(group, values, 0.0f);
        FAIL("no error was thrown");
    } catch (const error& refusal) {
        const std::string text = refusal.what();
        CHECK(text.find("was called outside of a launched kernel") != std::string::npos);
        CHECK(text.find("machine.cpp:") != std::string::npos);
    }
}

// Adds one to a tile through shared memory.
struct inner_kernel {
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<float> values;
    };
    struct shared_memory {
        tile staged;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        load(block, smem.staged, args.values.at(0, 0));
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 32> values;
            load(self, values, smem.staged);
            map(self, values, [](float x) { return x + 1.0f; });
            store(self, args.values.at(0, 0), values);
        });
    }
};

// Launches the other kernel in the middle of its work.
struct outer_kernel {
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<float> out;
        matrix_view<float> inner;
        host_mode mode;
    };
    struct shared_memory {
        tile staged;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        fill(block, smem.staged, 5.0f);
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 32> values;
            host_options options;
            options.mode = args.mode;
            host::launch<inner_kernel>({1}, {args.inner}, options);
            load(self, values, smem.staged);
            store(self, args.out.at(0, 0), values);
        });
    }
};

TEST_CASE("a kernel may launch another") {
    for (const host_mode outside : {host_mode::plain, host_mode::checked}) {
        for (const host_mode inside : {host_mode::plain, host_mode::checked}) {
            std::vector<float> out(64 * 32, -1.0f), inner(64 * 32, 1.0f);
            host_options options;
            options.mode = outside;
            host::launch<outer_kernel>({1}, {matrix(out.data(), 64, 32), matrix(inner.data(), 64, 32), inside},
                                       options);
            CHECK(std::count(out.begin(), out.end(), 5.0f) == 64 * 32);
            CHECK(std::count(inner.begin(), inner.end(), 2.0f) == 64 * 32);
        }
    }
}

// Each block writes its own element and counts itself.
struct place_kernel {
    static constexpr int warps = 1;
    struct arguments {
        int* places;
        int* counter;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, hw::no_shared_memory&) {
        const grid_dim at = block.index();
        const grid_dim grid = block.count();
        hw::put_global(block, args.places + (at.z * grid.y + at.y) * grid.x + at.x, at.x + 100 * at.y + 10000 * at.z,
                       source::current());
        block.each_warp([&](warp& self) { hw::fetch_increment(self, args.counter, source::current()); });
    }
};

TEST_CASE("runs many blocks on any number of threads") {
    const grid_dim grid{50, 4, 3};
    for (const int threads : {0, 1, 2, 3, 100}) {
        std::vector<int> places(600, -1);
        int counter = 0;
        host_options options;
        options.threads = threads;
        host::launch<place_kernel>(grid, {places.data(), &counter}, options);
        CHECK(counter == 600);
        bool right = true;
        for (int i = 0; i < 600; ++i) right = right && places[i] == i % 50 + 100 * (i / 50 % 4) + 10000 * (i / 200);
        CHECK(right);
    }
    std::vector<int> places(600, -1);
    int counter = 0;
    host::launch<place_kernel>(grid, {places.data(), &counter}, with_seed(7));
    CHECK(counter == 600);
    CHECK(std::find(places.begin(), places.end(), -1) == places.end());
}

// A block of one warp, which runs without a fiber: exceptions, deadlocks and a nested launch.
struct lone_kernel {
    static constexpr int warps = 1;
    enum class what { nothing, throws, waits, uses_another_scope, launches };
    struct arguments {
        what does;
        int* counter;
    };
    struct shared_memory {
        transaction_barrier full;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.full.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (args.does == what::throws) throw std::runtime_error("the kernel's own");
            if (args.does == what::waits) smem.full.wait(self, 0);
            if (args.does == what::uses_another_scope) block.sync();
            if (args.does == what::launches) host::launch<lone_kernel>({3}, {what::nothing, args.counter});
            hw::fetch_increment(self, args.counter, source::current());
        });
        block.each_warp([&](warp& self) { hw::fetch_increment(self, args.counter, source::current()); });
    }
};

TEST_CASE("a block of one warp throws, waits and launches as larger blocks do") {
    using what = lone_kernel::what;
    const auto hazard_of = [](what does) {
        int counter = 0;
        std::optional<hazard> found;
        try {
            host::launch<lone_kernel>({2}, {does, &counter});
        } catch (const hazard_error& reported) {
            found = reported.reported_hazard();
        }
        REQUIRE(found);
        CHECK(counter == 0);
        return *found;
    };
    const hazard waiting = hazard_of(what::waits);
    CHECK(waiting.kind == hazard_kind::deadlock);
    REQUIRE(waiting.locations.size() == 1);
    CHECK(waiting.locations[0].who == "warp 0");
    CHECK(waiting.locations[0].what == "waits for a phase of a transaction barrier");
    CHECK(hazard_of(what::uses_another_scope).kind == hazard_kind::wrong_scope);

    int counter = 0;
    CHECK_THROWS_WITH_AS(host::launch<lone_kernel>({3}, {what::throws, &counter}), "the kernel's own",
                         std::runtime_error);
    CHECK(counter == 0);
    host::launch<lone_kernel>({5}, {what::launches, &counter});
    CHECK(counter == 5 * (2 + 3 * 2));
}

struct pair_kernel : place_kernel {
    static constexpr int cluster = 2;
};

std::string error_message_of(grid_dim grid, bool pairs = false) {
    std::vector<int> places(1);
    try {
        if (pairs) {
            host::launch<pair_kernel>(grid, {places.data(), places.data()});
        } else {
            host::launch<place_kernel>(grid, {places.data(), places.data()});
        }
    } catch (const invalid_argument& refusal) {
        return refusal.what();
    }
    return "";
}

TEST_CASE("rejects grids that cannot be launched") {
    CHECK(error_message_of({0, 1, 1}) == "grid: (0, 1, 1) has no blocks; each extent must be positive");
    CHECK(error_message_of({1, -2, 1}) == "grid: (1, -2, 1) has no blocks; each extent must be positive");
    CHECK(error_message_of({1, 65536, 1}) == "grid: (1, 65536, 1); the second and third extent must be at most 65535");
    CHECK(error_message_of({1, 1, 70000}) == "grid: (1, 1, 70000); the second and third extent must be at most 65535");
    CHECK(error_message_of({65536, 65535, 1}) == "grid: (65536, 65535, 1) has more than 2147483647 blocks");
    CHECK(error_message_of({3, 1, 1}, true) == "grid: 3 blocks along x do not fill clusters of 2");
}

// Register tiles larger than a device could hold, and copies of them.
struct large_kernel {
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<float> out;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, hw::no_shared_memory&) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 512, 512> values;
            fill(self, values, 3.0f);
            const warpgroup_tile<float, 512, 512> copy = values;
            map(self, values, [](float x) { return x + 1.0f; });
            combine(self, values, copy, functional::add{});
            store(self, args.out.at(0, 0), values);
        });
    }
};

TEST_CASE("large register tiles fit a simulated warp's stack") {
    std::vector<float> out(512 * 512, -1.0f);
    host::launch<large_kernel>({1}, {matrix(out.data(), 512, 512)});
    CHECK(std::count(out.begin(), out.end(), 7.0f) == 512 * 512);
    CHECK(!host::check<large_kernel>({1}, {matrix(out.data(), 512, 512)}, 4));
}

}  // namespace
