// The PCT scheduler: the stated bound, a bug of known depth, progress of kernels that spin, and replay.
#include <doctest/doctest.h>

#include <imbrex/imbrex.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace imbrex;

// Two warps take many steps. Between two of them, warp 0 holds a flag; warp 1 tests it once. Only if the test comes
// between the two stores, warp 1 reads outside of a vector. That takes two constraints on the order: depth 2.
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
            const auto pass_time = [&] {
                for (int i = 0; i < 20; ++i)
                    atomic_fetch_add<memory_order::relaxed>(self, args.counters + self.index(), 1);
            };
            pass_time();
            if (self.index() == 0) {
                atomic_store<memory_order::relaxed>(self, args.flag, 1);
                atomic_store<memory_order::relaxed>(self, args.flag, 0);
            } else if (atomic_load<memory_order::relaxed>(self, args.flag) == 1) {
                hw::get(self, smem.values, 4, source::current());
            }
            pass_time();
        });
    }
};

struct window_memory {
    int flag = 0;
    int counters[2] = {};
    window_kernel::arguments arguments() { return {&flag, counters}; }
    void reset() { *this = {}; }
};

int hits_in(int schedules, const host::check_options& with, host::check_summary& summary) {
    window_memory memory;
    int hits = 0;
    for (int seed = 0; seed < schedules; ++seed) {
        host::check_options options = with;
        options.schedules = 1;
        options.first_seed = seed;
        options.summary = &summary;
        const auto found = host::check<window_kernel>({1}, memory.arguments(), options, [&] { memory.reset(); });
        hits += found ? 1 : 0;
        if (found) CHECK(found->kind == hazard_kind::outside_tile);
    }
    return hits;
}

TEST_CASE("PCT shows a bug of depth 2 at least as often as its bound says, and never with depth 1") {
    host::check_summary summary;
    CHECK(hits_in(300, {.scheduler = scheduling::pct, .bug_depth = 1}, summary) == 0);
    const int steps = summary.steps;
    CHECK(steps >= 84);
    CHECK(summary.threads == 3);  // the block and two warps

    const int schedules = 2000;
    const int hits = hits_in(schedules, {.scheduler = scheduling::pct, .bug_depth = 2, .pct_steps = steps}, summary);
    CHECK(hits >= schedules * pct_bound(3, steps, 2));
    CHECK(hits > 0);
}

TEST_CASE("a check measures the steps, states its bound and finds the bug") {
    window_memory memory;
    host::check_summary summary;
    const host::check_options options{
        .schedules = 3000, .scheduler = scheduling::pct, .bug_depth = 2, .summary = &summary};
    const auto found = host::check<window_kernel>({1}, memory.arguments(), options, [&] { memory.reset(); });
    REQUIRE(found);
    CHECK(summary.schedules > 1);
    CHECK(summary.bound() == doctest::Approx(1.0 / (3.0 * summary.steps)));
    CHECK(summary.text().find("probability to show a bug of depth 2: at least ") != std::string::npos);

    // The options that the report names replay it.
    host_options replay{.mode = host_mode::checked, .seed = found->seed, .scheduler = scheduling::pct, .bug_depth = 2};
    const std::size_t at = found->scheduler.find("pct_steps ");
    REQUIRE(at != std::string::npos);
    replay.pct_steps = std::stoi(found->scheduler.substr(at + 10));
    memory.reset();
    CHECK_THROWS_AS(host::launch<window_kernel>({1}, memory.arguments(), replay), hazard_error);
}

TEST_CASE("the bound is that of PCT") {
    CHECK(pct_bound(4, 100, 1) == doctest::Approx(0.25));
    CHECK(pct_bound(4, 100, 3) == doctest::Approx(0.25 / 10000));
    CHECK(pct_probability(4, 100, 1, 2) == doctest::Approx(1 - 0.75 * 0.75));
    CHECK(pct_probability(1000, 100000, 4, 1000) == doctest::Approx(1e-15));
    host::check_summary random;
    random.schedules = 7;
    CHECK(random.text() == "7 random schedules");
    CHECK(random.probability() == 0);
}

TEST_CASE("rejects a bug depth below 1") {
    window_memory memory;
    CHECK_THROWS_AS(host::check<window_kernel>({1}, memory.arguments(), {.bug_depth = 0}), invalid_argument);
}

// Warps spin: for a flag, and for a lock.
struct spinning_kernel {
    static constexpr int warps = 4;
    struct arguments {
        int* flag;
        int* lock;
        int* sum;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, hw::no_shared_memory&) {
        block.each_warp([&](warp& self) {
            if (self.index() == 3) atomic_store<memory_order::release>(self, args.flag, 1);
            while (atomic_load<memory_order::acquire>(self, args.flag) == 0) {}
            while (atomic_exchange<memory_order::acquire>(self, args.lock, 1) == 1) {}
            const int sum = get(self, args.sum);
            put(self, args.sum, sum + 1);
            atomic_store<memory_order::release>(self, args.lock, 0);
        });
    }
};

TEST_CASE("scopes that spin do not keep others from running") {
    for (int seed = 0; seed < 50; ++seed) {
        int flag = 0, lock = 0, sum = 0;
        const host_options options{.mode = host_mode::checked,
                                   .seed = static_cast<std::uint64_t>(seed),
                                   .scheduler = scheduling::pct,
                                   .pct_steps = 60};
        host::launch<spinning_kernel>({1}, {&flag, &lock, &sum}, options);
        CHECK(sum == 4);
    }
}

using operand = shared_tile<float, 8, 32>;
struct copies_kernel {
    static constexpr int warps = 2;
    struct arguments {
        tma_tensor<operand, 2> in;
        matrix_view<float> out;
    };
    struct shared_memory {
        pipeline<operand, 2> ring;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                auto filling = smem.ring.producer(self);
                for (int i = 0; i < 6; ++i) {
                    auto slot = filling.acquire();
                    load_async(self, *slot, args.in.tile(i, 0), slot);
                }
            } else {
                auto full = smem.ring.consumer(self);
                for (int i = 0; i < 6; ++i) {
                    auto stage = full.wait();
                    store(self, args.out.at(i * operand::rows, 0), *stage);
                }
            }
        });
    }
};

TEST_CASE("a correct kernel with copies in flight is silent and computes the same") {
    std::vector<float> in(48 * 32), out(48 * 32);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    host::check_summary summary;
    const auto found = host::check<copies_kernel>(
        {1}, {make_tma_tensor<operand>(matrix(in.data(), 48, 32)), matrix(out.data(), 48, 32)},
        {.schedules = 200, .scheduler = scheduling::pct, .summary = &summary});
    CHECK(hazard_text(found) == "");
    CHECK(out == in);
    CHECK(summary.threads >= 3 + 6);  // the block, two warps, six copies
}

}  // namespace
