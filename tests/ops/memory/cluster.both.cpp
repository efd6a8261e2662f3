// DSMEM stores of register tiles to another block of the cluster, round after round, by a warp and by a warpgroup. The
// checker detects an early read, a buffer that is overwritten before it was read, and every mutation.
#include <imbrex/ops/memory/cluster.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/global_view.hpp>

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int columns = 24, turns = 3;

enum class fault { none, takes_early, sends_early };

// In each round a block stores its tile to the other block and writes the sum of its own and twice the other's.
template <int Warps, fault Fault = fault::none>
struct sum_with_other {
    static constexpr int warps = Warps;
    static constexpr int cluster = 2;
    static constexpr int rows = 16 * Warps;
    struct arguments {
        matrix_view<const float> in;
        matrix_view<float> out;
    };
    struct shared_memory {
        dsmem_buffer<float, rows, columns> place;
        transaction_barrier landed;
        transaction_barrier free;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.landed.init(block, Warps);
        shared.free.init(block, Warps);
        fence_barriers(block);
        block.cluster_sync();
        const int other = 1 - block.cluster_rank();
        const auto each_turn = [&](auto& self) {
            for (unsigned turn = 0; turn < turns; ++turn) {
                const int first = (static_cast<int>(turn) * block.count().x + block.index().x) * rows;
                hw::fragment<float, rows, columns, Warps> values, more;
                load(self, values, args.in.at(first, 0));
                if constexpr (Fault != fault::sends_early) shared.free.wait(self, turn - 1);
                dsmem_store_async(self, shared.place, values, shared.landed, other);
                shared.landed.expect(self, shared.place.bytes);
                if constexpr (Fault != fault::takes_early) shared.landed.wait(self, turn);
                fence_cluster(self);
                load_dsmem_buffer(self, more, shared.place);
                combine(self, values, more, [](float x, float y) { return x + 2 * y; });
                store(self, args.out.at(first, 0), values);
                if (turn + 1 < turns) shared.free.arrive_at(self, other);
            }
        };
        if constexpr (Warps == 1) {
            block.each_warp(each_turn);
        } else {
            block.each_warpgroup(each_turn);
        }
    }
};

template <int Warps>
void check_sums(int blocks) {
    using kernel = sum_with_other<Warps>;
    const int rows = turns * blocks * kernel::rows;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> in(where, rows * columns), out(where, rows * columns, -1.0f);
        fill_random(in.values, 3);
        run<kernel>(where, {blocks},
                    {matrix<const float>(in.upload(), rows, columns), matrix(out.upload(), rows, columns)}, 4);
        out.download();
        for (int row = 0; row < rows; ++row) {
            const int block = row / kernel::rows, other = (block ^ 1) * kernel::rows + row % kernel::rows;
            for (int column = 0; column < columns; ++column) {
                REQUIRE(out.values[row * columns + column] ==
                        in.values[row * columns + column] + 2 * in.values[other * columns + column]);
            }
        }
    }
}

}  // namespace

TEST_CASE("register tiles are exchanged between the blocks of a cluster") {
    check_sums<1>(2);
    check_sums<4>(2);
    check_sums<4>(6);
}

#if !defined(__CUDACC__)
namespace {

template <class Kernel>
bool is_told() {
    const int rows = turns * 2 * Kernel::rows;
    std::vector<float> in(rows * columns, 1.0f), out(rows * columns);
    return host::check<Kernel>({2}, {matrix<const float>(in.data(), rows, columns), matrix(out.data(), rows, columns)},
                               200)
        .has_value();
}

}  // namespace

TEST_CASE("the checker reports an early read and an early overwrite of a DSMEM buffer") {
    CHECK(!is_told<sum_with_other<4>>());
    CHECK(!is_told<sum_with_other<1>>());
    CHECK(is_told<sum_with_other<4, fault::takes_early>>());
    CHECK(is_told<sum_with_other<4, fault::sends_early>>());
}

TEST_CASE("the checker detects every mutation of a DSMEM exchange") {
    using kernel = sum_with_other<4>;
    const int rows = turns * 2 * kernel::rows;
    std::vector<float> in(rows * columns, 1.0f), out(rows * columns);
    check_synchronisation<kernel>(
        "dsmem_buffers", {2}, {matrix<const float>(in.data(), rows, columns), matrix(out.data(), rows, columns)}, 200);
}
#endif
