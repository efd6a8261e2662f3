// Atomic operations: one operation of a warp in both worlds, sums of tiles, flags between blocks, a cooperative grid
// barrier, and a ticket lock. The checker requires release and acquire.
#include "synchronisation.hpp"
#include "worlds.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Each warp applies every operation once to values of its own.
struct one_of_each {
    static constexpr int warps = 4;
    struct arguments {
        int* values;
        int* old;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int number = block.index().x * warps + self.index();
            int* const value = args.values + number;
            int* const old = args.old + number * 6;
            put(self, old + 0, atomic_fetch_add<memory_order::relaxed>(self, value, 5));
            put(self, old + 1, atomic_fetch_max<memory_order::acq_rel>(self, value, 100));
            put(self, old + 2, atomic_exchange<memory_order::acquire>(self, value, 7));
            put(self, old + 3, atomic_compare_exchange<memory_order::release>(self, value, 7, 8));
            put(self, old + 4, atomic_compare_exchange<memory_order::relaxed>(self, value, 7, 9));
            atomic_store<memory_order::release>(self, value, 3 * atomic_load<memory_order::relaxed>(self, value));
            put(self, old + 5, wait_for_value<memory_order::acquire>(self, value, [](int one) { return one == 24; }));
        });
    }
};

// Every block adds its tile to the same rectangle, which ends inside the tile.
struct sum_of_tiles {
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<float> sum;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 32> ones;
            fill(self, ones, static_cast<float>(block.index().x + 1));
            atomic_add(self, args.sum.at(0, 0), ones);
        });
    }
};

// All blocks write, meet at a counter, and read the rows of the next block.
struct grid_barrier_kernel {
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<float> work;
        matrix_view<float> out;
        int* arrived;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int mine = block.index().x, blocks = block.count().x;
            warp_tile<float, 16, 32> rows;
            fill(self, rows, static_cast<float>(mine));
            store(self, args.work.at(mine * 16, 0), rows);
            self.sync();
            atomic_fetch_add<memory_order::release>(self, args.arrived, 1);
            wait_for_value<memory_order::acquire>(self, args.arrived, [&](int count) { return count == blocks; });
            load(self, rows, args.work.at((mine + 1) % blocks * 16, 0));
            store(self, args.out.at(mine * 16, 0), rows);
        });
    }
};
struct grid_barrier : grid_barrier_kernel {
    static constexpr bool cooperative = true;
};
struct grid_barrier_sized_to_fit : grid_barrier_kernel {
    static constexpr bool sized_to_fit = true;
};

}  // namespace

TEST_CASE("a warp makes one atomic operation, and all lanes get the old value") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<int> values(where, 8, 10), old(where, 48, -1);
        run<one_of_each>(where, {2}, {values.upload(), old.upload()}, 1);
        values.download();
        old.download();
        for (int i = 0; i < 8; ++i) {
            CHECK(values.values[i] == 24);
            const int expected[] = {10, 15, 100, 7, 8, 24};
            for (int j = 0; j < 6; ++j) CHECK(old.values[i * 6 + j] == expected[j]);
        }
    }
}

TEST_CASE("atomic_add adds each element of a tile once and nothing out of bounds") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> sum(where, 50 * 40, 1.0f);
        // The matrix has 50 x 30 elements; its rows are 40 apart.
        run<sum_of_tiles>(where, {5}, {matrix(sum.upload(), 50, 30, 40)}, 1);
        sum.download();
        for (int i = 0; i < 50 * 40; ++i) CHECK(sum.values[i] == (i % 40 < 30 ? 16.0f : 1.0f));
    }
}

TEST_CASE_TEMPLATE("the blocks of a grid that is resident as a whole wait for each other", Kernel, grid_barrier,
                   grid_barrier_sized_to_fit) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const int blocks = 24;
        buffer<float> work(where, blocks * 16 * 32, -1.0f), out(where, blocks * 16 * 32, -1.0f);
        buffer<int> arrived(where, 1, 0);
        run<Kernel>(where, {blocks},
                    {matrix(work.upload(), blocks * 16, 32), matrix(out.upload(), blocks * 16, 32), arrived.upload()},
                    1);
        out.download();
        bool right = true;
        for (int i = 0; i < blocks * 16 * 32; ++i) {
            right = right && out.values[i] == static_cast<float>((i / 512 + 1) % blocks);
        }
        CHECK(right);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("the checker requires release and acquire of a grid barrier") {
    std::vector<float> work(4 * 16 * 32), out(work.size());
    int arrived = 0;
    const grid_barrier::arguments arguments{matrix(work.data(), 64, 32), matrix(out.data(), 64, 32), &arrived};
    const auto reset = [&] { arrived = 0; };
    CHECK(!host::check<grid_barrier>({4}, arguments, 100, 0, reset));
    const host::mutation_score score = host::mutate<grid_barrier>({4}, arguments, 20, reset);
    INFO(score.text());
    CHECK(score.total() >= 2);
    CHECK(score.killed() == score.total());
}

struct spins_forever {
    static constexpr int warps = 1;
    struct arguments {
        int* flag;
    };
    template <class Block, class Shared>
    static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            while (atomic_load<memory_order::acquire>(self, args.flag) == 0) {}
        });
    }
};

TEST_CASE("a loop that polls a value which nobody writes is a livelock") {
    int flag = 0;
    const auto found = host::check<spins_forever>({1}, {&flag}, 1);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::deadlock);
    CHECK(found->text().find("livelock") != std::string::npos);
    CHECK(found->text().find("atomic load") != std::string::npos);
}

TEST_CASE("a grid that may not be resident as a whole must not wait for all of its blocks") {
    std::vector<float> work(4 * 16 * 32), out(work.size());
    int arrived = 0;
    const grid_barrier_kernel::arguments arguments{matrix(work.data(), 64, 32), matrix(out.data(), 64, 32), &arrived};
    const auto found = host::check<grid_barrier_kernel>({4}, arguments, 4, 0, [&] { arrived = 0; });
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::not_resident);
}

// Each block but the first spins on the flag of the block before it, by hand: with loads, or with operations that write.
template <bool Writes>
struct spins_on_neighbour {
    static constexpr int warps = 1;
    using arguments = int*;
    static int read(warp& self, int* flag) {
        if constexpr (Writes) return atomic_fetch_add<memory_order::acq_rel>(self, flag, 0);
        return atomic_load<memory_order::acquire>(self, flag);
    }
    template <class Block, class Shared>
    static void run(Block& block, const arguments& flags, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = block.index().x;
            while (own > 0 && read(self, flags + own - 1) == 0) {}
            atomic_store<memory_order::release>(self, flags + own, 1);
        });
    }
};

TEST_CASE("a loop that polls a value of a block that has not started is not a livelock") {
    std::vector<int> flags(6);
    const auto reset = [&] { flags.assign(6, 0); };
    const auto found = host::check<spins_on_neighbour<false>>({6}, flags.data(), 8, 0, reset);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::not_resident);
    CHECK(found->text().find("atomic.both.cpp:") != std::string::npos);
    CHECK(!host::check<spins_on_neighbour<false>>({1}, flags.data(), 4, 0, reset));
}

TEST_CASE("it is a livelock if each operation of the loop writes") {
    std::vector<int> flags(6);
    const auto reset = [&] { flags.assign(6, 0); };
    const auto found = host::check<spins_on_neighbour<true>>({6}, flags.data(), {.shrink_replays = 0}, reset);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::deadlock);
    CHECK(found->text().find("livelock") != std::string::npos);
    CHECK(found->text().find("atomic add") != std::string::npos);
}

// Counts for long, and then ends.
struct counts_for_long {
    static constexpr int warps = 1;
    using arguments = int*;
    template <class Block, class Shared>
    static void run(Block& block, const arguments& counter, Shared&) {
        block.each_warp([&](warp& self) {
            while (atomic_fetch_add<memory_order::relaxed>(self, counter, 1) < 150000) {}
        });
    }
};

TEST_CASE("a loop that counts to 150,000 is no livelock") {
    int counter = 0;
    CHECK(!host::check<counts_for_long>({2}, &counter, 2, 0, [&] { counter = 0; }));
}
#endif
