// DSMEM reads: each block of a cluster reads the shared memory of all. The checker detects an early read, a write
// before all have read, and every mutation.
#include <imbrex/hw/memory.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows = 64, columns = 32;

// In each of two rounds a block writes its tile and stores the sum of the tiles of its cluster, each times its rank
// plus one.
template <int Cluster, bool Waits = true>
struct sum_of_cluster {
    static constexpr int warps = 4;
    static constexpr int cluster = Cluster;
    using tile = shared_tile<float, rows, columns>;
    struct arguments {
        matrix_view<const float> in;
        matrix_view<float> out;
    };
    struct shared_memory {
        tile mine;
        transaction_barrier full;
        transaction_barrier empty;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.full.init(block, warps * Cluster);
        shared.empty.init(block, warps * Cluster);
        fence_barriers(block);
        block.cluster_sync();
        block.each_warpgroup([&](warpgroup& self) {
            for (int turn = 0; turn < 2; ++turn) {
                const int place = (turn * block.count().x + block.index().x) * rows;
                warpgroup_tile<float, rows, columns> values;
                load(self, values, args.in.at(place, 0));
                shared.empty.wait(self, turn - 1);
                store(self, shared.mine, values);
                hw::fence_cluster(self);
                for (int rank = 0; rank < Cluster; ++rank) shared.full.arrive_at(self, rank);
                if constexpr (Waits) shared.full.wait(self, turn);
                hw::fence_cluster(self);
                fill(self, values, 0.0f);
                for (int rank = 0; rank < Cluster; ++rank) {
                    warpgroup_tile<float, rows, columns> other;
                    hw::load_dsmem(self, other, shared.mine, rank);
                    combine(self, values, other,
                            [=](float x, float y) { return x + y * static_cast<float>(rank + 1); });
                }
                store(self, args.out.at(place, 0), values);
                for (int rank = 0; rank < Cluster; ++rank) shared.empty.arrive_at(self, rank);
            }
        });
        block.cluster_sync();
    }
};

template <int Cluster>
void check_sums(int clusters) {
    const int blocks = clusters * Cluster, size = 2 * blocks * rows * columns;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> in(where, size), out(where, size, -1.0f);
        fill_random(in.values, 3);
        run<sum_of_cluster<Cluster>>(where, {blocks},
                                     {matrix<const float>(in.upload(), 2 * blocks * rows, columns),
                                      matrix(out.upload(), 2 * blocks * rows, columns)});
        out.download();
        bool right = true;
        for (int i = 0; i < size; ++i) {
            const int block = i / (rows * columns), first = block / Cluster * Cluster;
            float expected = 0;
            for (int rank = 0; rank < Cluster; ++rank) {
                expected += in.values[i + (first + rank - block) * rows * columns] * static_cast<float>(rank + 1);
            }
            right = right && std::abs(out.values[i] - expected) < 1e-5f;
        }
        CHECK(right);
    }
}

}  // namespace

TEST_CASE("a block reads the shared memory of the others of its cluster") {
    check_sums<2>(3);
    check_sums<4>(1);
}

#if !defined(__CUDACC__)
TEST_CASE("the checker covers reads of another block's shared memory") {
    std::vector<float> in(2 * 2 * rows * columns, 1.0f), out(in.size());
    const auto arguments = [&] {
        return typename sum_of_cluster<2>::arguments{matrix<const float>(in.data(), 4 * rows, columns),
                                                     matrix(out.data(), 4 * rows, columns)};
    };
    check_synchronisation<sum_of_cluster<2>>("a sum of two blocks", {2}, arguments(), 300);
    const auto found = host::check<sum_of_cluster<2, false>>(
        {2}, {matrix<const float>(in.data(), 4 * rows, columns), matrix(out.data(), 4 * rows, columns)}, 300);
    CHECK(found.has_value());
}
#endif
