// Scopes and barriers on the device: roles and their registers, elected lanes, rings of transaction barriers, named
// barriers, clusters, and invalid launches.
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/sync.hpp>

#include <cmath>
#include <hw/cuda/support.hpp>

using namespace hw_test;

namespace {

// Each thread that calls it adds. The host pass of nvcc sees the kernels, too, and has no atomicAdd.
IMBREX_KERNEL void add([[maybe_unused]] int* place, [[maybe_unused]] int value) {
#if defined(__CUDA_ARCH__)
    atomicAdd(place, value);
#endif
}

// Every scope records its identity: one word per warp.
struct who_is_who {
    static constexpr int warps = 16;
    struct arguments {
        int* seen;
    };
    static constexpr int rows = 4;

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        const grid_dim at = block.index(), size = block.count();
        const int number = at.x + size.x * (at.y + size.y * at.z);
        int* mine = args.seen + number * rows * 16;
        if (hw::elected(block)) add(mine + 3, 1000);
        block.each_warp([&](auto& warp) {
            if (hw::elected(warp)) add(mine + 48 + warp.index(), 1 + size.z);
        });
        block.roles(producer<24>([&](auto& warp) {
                        if (hw::elected(warp)) add(mine + 0 + warp.index(), 1);
                    }),
                    single_warps<6, 80>("helper",
                                        [&](auto& warp) {
                                            if (hw::elected(warp)) add(mine + 16 + warp.index(), 1);
                                        }),
                    consumers<1, 240>([&](auto& group) {
                        // Each of the four warps counts once, by one of its lanes.
                        add(mine + 32 + group.index(), 1);
                        if (hw::elected(group)) add(mine + 40, 1);
                        group.sync();
                    }));
    }
};

// A producer warp passes numbers to two consumer warpgroups through a ring of stages, by ordinary stores.
struct ring {
    static constexpr int warps = 12;
    static constexpr int count = 3;
    struct arguments {
        int* sums;  // one for each consumer thread
        int rounds;
    };
    struct shared_memory {
        int stage[count][32];
        barrier_word full[count], empty[count];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        for (int i = 0; i < count; ++i) {
            hw::barrier_init(block, smem.full[i], 1);
            hw::barrier_init(block, smem.empty[i], 8);
        }
        hw::barrier_init_fence(block);
        block.sync();
        block.roles(producer<40>([&](auto& warp) {
                        for (int i = 0; i < args.rounds; ++i) {
                            hw::barrier_wait(warp, smem.empty[i % count], static_cast<unsigned>(i / count - 1));
                            write(warp, smem.stage[i % count], i);
                            hw::barrier_arrive(warp, smem.full[i % count]);
                        }
                    }),
                    consumers<2, 232>([&](auto& group) {
                        int sum = 0;
                        for (int i = 0; i < args.rounds; ++i) {
                            hw::barrier_wait(group, smem.full[i % count], static_cast<unsigned>(i / count));
                            sum += read(smem.stage[i % count]);
                            hw::barrier_arrive(group, smem.empty[i % count]);
                        }
                        add_to(group, args.sums + group.index() * 128, sum);
                    }));
    }

    template <class Scope>
    IMBREX_KERNEL static void write(const Scope& scope, int (&stage)[32], int value) {
        if (hw::elected(scope)) {
            for (int& place : stage) place = value;
        }
        scope.sync();
    }
    IMBREX_KERNEL static int read(const int (&stage)[32]) {
        int sum = 0;
        for (const int& place : stage) sum += place;
        return sum;
    }
    // Every thread adds: the host expects 128 times the sum in the first word of the group.
    template <class Scope>
    IMBREX_KERNEL static void add_to(const Scope&, int* place, int sum) {
        add(place, sum);
    }
};

// Two warpgroups alternate on a counter by named barriers.
struct turns {
    static constexpr int warps = 8;
    struct arguments {
        int* order;
        int rounds;
    };
    struct shared_memory {
        int next;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        if (hw::elected(block)) smem.next = 0;
        block.sync();
        block.roles(consumers<2>([&](auto& group) {
            const int mine = 9 + group.index(), other = 9 + (1 - group.index());
            if (group.index() == 1) hw::named_arrive(group, other, 8);
            for (int i = 0; i < args.rounds; ++i) {
                hw::named_sync(group, mine, 8);
                if (hw::elected(group)) args.order[smem.next++] = group.index();
                group.sync();
                if (i + 1 < args.rounds || group.index() == 0) hw::named_arrive(group, other, 8);
            }
        }));
    }
};

// The blocks of a cluster arrive at each other's barriers.
struct neighbours {
    static constexpr int warps = 4;
    static constexpr int cluster = 2;
    struct arguments {
        int* ranks;
        int rounds;
    };
    struct shared_memory {
        barrier_word met;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        hw::barrier_init(block, smem.met, 8);
        hw::barrier_init_fence(block);
        block.cluster_sync();
        block.each_warp([&](auto& warp) {
            for (int i = 0; i < args.rounds; ++i) {
                for (int rank = 0; rank < cluster; ++rank) hw::barrier_arrive_at(warp, smem.met, rank);
                hw::barrier_wait(warp, smem.met, static_cast<unsigned>(i));
            }
        });
        if (hw::elected(block)) args.ranks[block.index().x] = block.cluster_rank() + 10 * Block::cluster_size;
        block.cluster_sync();
    }
};

struct functions {
    static constexpr int warps = 1;
    struct arguments {
        const float* input;
        float *powers, *logarithms, *inverses;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        if (hw::elected(block)) {
            for (int i = 0; i < 32; ++i) {
                args.powers[i] = hw::exp2(args.input[i]);
                args.logarithms[i] = hw::log2(args.input[i]);
                args.inverses[i] = hw::reciprocal(args.input[i]);
            }
        }
    }
};

struct greedy {
    static constexpr int warps = 1;
    struct arguments {
        int unused;
    };
    struct shared_memory {
        unsigned char bytes[1 << 20];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block&, const arguments&, shared_memory&) {}
};

}  // namespace

TEST_CASE("each scope has its index, and one lane of it is elected") {
    if (skipped()) return;
    const grid_dim grid{2, 3, 2};
    const device_buffer<int> seen(std::vector<int>(12 * 64, 0));
    device::launch<who_is_who>(grid, {seen.data()});
    std::vector<int> expected(12 * 64, 0);
    for (int block = 0; block < 12; ++block) {
        int* mine = expected.data() + block * 64;
        mine[0] = 1;
        mine[3] = 1000;
        for (int i = 0; i < 6; ++i) mine[16 + i] = 1;
        mine[32] = 128;
        mine[40] = 1;
        for (int i = 0; i < 16; ++i) mine[48 + i] = 1 + 2;
    }
    CHECK(differing(seen.read(), expected) == 0);
}

TEST_CASE("a ring of barriers passes every stage once") {
    if (skipped()) return;
    for (const int rounds : {0, 1, 2, 3, 1000}) {
        const device_buffer<int> sums(std::vector<int>(2 * 128, 0));
        device::launch<ring>({1, 1, 1}, {sums.data(), rounds});
        std::vector<int> expected(2 * 128, 0);
        expected[0] = expected[128] = static_cast<int>(128LL * 32 * rounds * (rounds - 1) / 2);
        CHECK(differing(sums.read(), expected) == 0);
    }
}

TEST_CASE("named barriers alternate between two warpgroups") {
    if (skipped()) return;
    constexpr int rounds = 200;
    const device_buffer<int> order(2 * rounds);
    device::launch<turns>({1, 1, 1}, {order.data(), rounds});
    std::vector<int> expected(2 * rounds);
    for (int i = 0; i < 2 * rounds; ++i) expected[i] = i % 2;
    CHECK(differing(order.read(), expected) == 0);
}

TEST_CASE("blocks of a cluster arrive at each other's barriers") {
    if (skipped()) return;
    const device_buffer<int> ranks(6);
    device::launch<neighbours>({6, 1, 1}, {ranks.data(), 100});
    CHECK(differing(ranks.read(), {20, 21, 20, 21, 20, 21}) == 0);
}

TEST_CASE("approximations") {
    if (skipped()) return;
    std::vector<float> input(32);
    for (int i = 0; i < 32; ++i) input[i] = 0.3F * static_cast<float>(i + 1);
    const device_buffer<float> from(input), powers(32), logarithms(32), inverses(32);
    device::launch<functions>({1, 1, 1}, {from.data(), powers.data(), logarithms.data(), inverses.data()});
    const std::vector<float> p = powers.read(), l = logarithms.read(), r = inverses.read();
    for (int i = 0; i < 32; ++i) {
        const double x = input[i];
        CHECK(p[i] == doctest::Approx(std::exp2(x)).epsilon(1e-6));
        CHECK(std::abs(l[i] - std::log2(x)) < 2e-6);
        CHECK(r[i] == doctest::Approx(1 / x).epsilon(1e-6));
    }
}

TEST_CASE("rejects launches that the device cannot make") {
    if (skipped()) return;
    const device_buffer<int> ranks(6);
    CHECK_THROWS_WITH_AS(device::launch<neighbours>({3, 1, 1}, {ranks.data(), 1}),
                         doctest::Contains("not a multiple of the 2 blocks of a cluster"), invalid_argument);
    CHECK_THROWS_WITH_AS(device::launch<turns>({1, 0, 1}, {ranks.data(), 1}), doctest::Contains("must be positive"),
                         invalid_argument);
    CHECK_THROWS_WITH_AS(device::launch<greedy>({1, 1, 1}, {0}), doctest::Contains("1048576 bytes of shared memory"),
                         invalid_argument);
    check_cuda(cudaDeviceSynchronize());
}
