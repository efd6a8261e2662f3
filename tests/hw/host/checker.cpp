// The parts of the checker: vector clocks and the history of bytes, exact to the byte.
#include <doctest/doctest.h>

#include <imbrex/imbrex.hpp>

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace {

using namespace imbrex;

TEST_CASE("a clock knows only actors it has joined with, and a join takes the later tick of each") {
    hw::vector_clock one, other;
    CHECK(one[7] == 0);
    one.set(2, 5);
    one.raise(2, 3);
    one.raise(0, 1);
    other.raise(2, 4);
    other.raise(9, 8);
    one.join(other);
    CHECK(one[0] == 1);
    CHECK(one[2] == 5);
    CHECK(one[9] == 8);
    CHECK(other[0] == 0);
}

TEST_CASE("history is kept by intervals, exact to the byte") {
    hw::shadow_memory shadow(100);
    const auto written = [&](int begin, int end) {
        std::vector<std::uint32_t> ticks;
        shadow.visit(begin, end, [&](hw::byte_history& one) { ticks.push_back(one.written ? one.write.tick : 0); });
        return ticks;
    };
    const auto write = [&](int begin, int end, std::uint32_t tick) {
        hw::access by;
        by.tick = tick;
        shadow.write(begin, end, by, [](const hw::byte_history&) {});
    };
    CHECK(written(0, 100) == std::vector<std::uint32_t>{0});
    write(10, 20, 1);
    write(15, 30, 2);
    write(99, 100, 3);
    CHECK(written(9, 10) == std::vector<std::uint32_t>{0});
    CHECK(written(10, 15) == std::vector<std::uint32_t>{1});
    CHECK(written(14, 16) == std::vector<std::uint32_t>{1, 2});
    CHECK(written(29, 31) == std::vector<std::uint32_t>{2, 0});
    CHECK(written(99, 100) == std::vector<std::uint32_t>{3});
}

// The history of one byte as a list of ticks: the last write, then the reads since.
using ticks = std::vector<std::uint32_t>;
ticks ticks_of(const hw::byte_history& one) {
    ticks all{one.written ? one.write.tick : 0};
    for (const hw::access& read : one.reads) all.push_back(read.tick);
    return all;
}

TEST_CASE("random reads and writes give each byte its own history") {
    std::mt19937 random(1);
    constexpr int bytes = 4096 + 30, near = 4096 - 30;  // on both sides of a page of the history
    for (int round = 0; round < 50; ++round) {          // later rounds reuse the memory of earlier ones
        hw::shadow_memory shadow(bytes);
        std::vector<ticks> expected(bytes, ticks{0});
        for (std::uint32_t tick = 1; tick < 60; ++tick) {
            const int begin = near + static_cast<int>(random() % 60), end = begin + static_cast<int>(random() % 9);
            if (end > bytes) continue;
            hw::access made;
            made.tick = tick;
            made.actor = static_cast<int>(tick);
            std::set<ticks> seen, right(expected.begin() + begin, expected.begin() + end);
            if (random() % 2 == 0) {
                shadow.write(begin, end, made, [&](const hw::byte_history& one) { seen.insert(ticks_of(one)); });
                for (int i = begin; i < end; ++i) expected[i] = {tick};
            } else {
                shadow.visit(begin, end, [&](hw::byte_history& one) {
                    seen.insert(ticks_of(one));
                    one.remember_read(made);
                });
                for (int i = begin; i < end; ++i) expected[i].push_back(tick);
            }
            REQUIRE(seen == right);
        }
        for (int i = near; i < bytes; ++i) {
            shadow.visit(i, i + 1, [&](hw::byte_history& one) { REQUIRE(ticks_of(one) == expected[i]); });
        }
    }
}

TEST_CASE("a write clears earlier reads, and the latest read of each actor is kept") {
    hw::byte_history history;
    hw::access read;
    read.actor = 1;
    for (std::uint32_t tick : {1, 2, 3}) {
        read.tick = tick;
        history.remember_read(read);
    }
    read.actor = 2;
    history.remember_read(read);
    CHECK(history.reads.size() == 2);
    CHECK(history.reads[0].tick == 3);
    history.remember_write(read);
    CHECK(history.reads.empty());
}

// Warps write neighbouring subtiles, then each reads its own and, if Reach says so, one row of its neighbour's.
template <int Reach>
struct neighbours_kernel {
    static constexpr int warps = 4;
    struct arguments {};
    struct shared_memory {
        shared_tile<float, 64, 32> tile;
    };
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, 32> values;
            fill(self, values, 1.0f);
            store(self, smem.tile.template subtile<16>(16 * self.index()), values);
            if (self.index() < 3) load(self, values, smem.tile.template subtile<16>(16 * self.index() + Reach));
        });
    }
};

TEST_CASE("neighbouring subtiles are no race, one row of overlap is") {
    CHECK(!host::check<neighbours_kernel<0>>({1}, {}, 20));
    int races = 0;
    for (int seed = 0; seed < 20; ++seed) {
        const auto found = host::check<neighbours_kernel<1>>({1}, {}, 1, seed);
        REQUIRE(found);
        races += found->kind == hazard_kind::race ? 1 : 0;
        CHECK((found->kind == hazard_kind::race || found->kind == hazard_kind::uninitialised_read));
    }
    CHECK(races > 0);
}

// The copies and fences of another warpgroup, without a sync of its scope: each of its warps has waited for its part,
// fenced it and arrived, so a scope that waits may multiply.
struct handed_over_kernel {
    static constexpr int warps = 8;
    using operand = shared_tile<bf16, 64, 64>;
    struct arguments {
        matrix_view<bf16> in;
    };
    struct shared_memory {
        operand tile;
        transaction_barrier landed;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.landed.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(consumers<2>([&](warpgroup& self) {
            if (self.index() == 0) {
                copy_async(self, smem.tile, args.in.at(0, 0));
                commit_copies(self);
                wait_copies(self);
                fence_async(self);
                smem.landed.arrive(self);
            } else {
                warpgroup_tile<float, 64, 64> sum;
                fill(self, sum, 0.0f);
                smem.landed.wait(self, 0);
                mma_ab(self, sum, smem.tile, smem.tile);
            }
        }));
    }
};

TEST_CASE("one warpgroup may multiply copies that another has waited for and fenced") {
    std::vector<bf16> in(64 * 64, bf16(1.0f));
    const auto found = host::check<handed_over_kernel>({1}, {matrix(in.data(), 64, 64)}, 200);
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
    const auto score = host::mutate<handed_over_kernel>({1}, {matrix(in.data(), 64, 64)});
    INFO(score.text());
    CHECK(score.killed() == score.total());
}

}  // namespace
