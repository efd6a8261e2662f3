// Bulk copies of a shared tile to another block of the cluster, round after round. The checker detects an early read, a
// missing fence, a wrong number of bytes, a source or destination that is overwritten while in use, a block that exits
// while its tile is still copied, and every mutation.
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/ops/memory/cluster.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/global_view.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <optional>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows = 64, columns = 32, rounds = 3;

enum class fault { none, no_wait, no_fence, few_bytes, sends_early, exits_early };

// In each round a block copies its tile to the other block and writes the sum of its own and twice the other's.
template <fault Fault = fault::none>
struct sum_of_tiles {
    static constexpr int warps = 4;
    static constexpr int cluster = 2;
    using tile = shared_tile<float, rows, columns>;
    struct arguments {
        matrix_view<const float> in;
        matrix_view<float> out;
    };
    struct shared_memory {
        tile own;
        tile received;
        transaction_barrier landed;
        transaction_barrier free;  // the other block has received `own` and read it
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.landed.init(block, 4);
        shared.free.init(block, 4);
        fence_barriers(block);
        block.cluster_sync();
        block.each_warpgroup([&](warpgroup& self) {
            for (unsigned round = 0; round < rounds; ++round) {
                const int first = (static_cast<int>(round) * block.count().x + block.index().x) * rows;
                add_tiles(self, first, round, 1 - block.cluster_rank(), args, shared);
            }
        });
        if constexpr (Fault != fault::exits_early) block.cluster_sync();
    }

    IMBREX_KERNEL static void add_tiles(const warpgroup& self, int first, unsigned round, int other,
                                        const arguments& args, shared_memory& shared) {
        warpgroup_tile<float, rows, columns> values, more;
        load(self, values, args.in.at(first, 0));
        if constexpr (Fault != fault::sends_early) shared.free.wait(self, round - 1);
        store(self, shared.own, values);
        if constexpr (Fault != fault::no_fence) fence_async(self);
        self.sync();
        copy_to_block_async(self, shared.received, shared.own, shared.landed, other);
        shared.landed.expect(self, Fault == fault::few_bytes ? tile::bytes - 64 : tile::bytes);
        if constexpr (Fault != fault::no_wait) shared.landed.wait(self, round);
        load(self, more, shared.received);
        combine(self, values, more, [](float x, float y) { return x + 2 * y; });
        store(self, args.out.at(first, 0), values);
        if (round + 1 < rounds) shared.free.arrive_at(self, other);
    }
};

void check_sums(int blocks) {
    const int all = rounds * blocks * rows;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> in(where, all * columns), out(where, all * columns, -1.0f);
        fill_random(in.values, 3);
        run<sum_of_tiles<>>(where, {blocks},
                            {matrix<const float>(in.upload(), all, columns), matrix(out.upload(), all, columns)}, 4);
        out.download();
        for (int row = 0; row < all; ++row) {
            const int other = (row / rows ^ 1) * rows + row % rows;
            for (int column = 0; column < columns; ++column) {
                REQUIRE(out.values[row * columns + column] ==
                        in.values[row * columns + column] + 2 * in.values[other * columns + column]);
            }
        }
    }
}

}  // namespace

TEST_CASE("shared tiles are exchanged between the blocks of a cluster by bulk copies") {
    check_sums(2);
    check_sums(6);
}

#if !defined(__CUDACC__)
namespace {

template <fault Fault>
std::optional<hazard> found() {
    const int all = rounds * 2 * rows;
    std::vector<float> in(all * columns, 1.0f), out(all * columns);
    return host::check<sum_of_tiles<Fault>>(
        {2}, {matrix<const float>(in.data(), all, columns), matrix(out.data(), all, columns)}, 200);
}
template <fault Fault>
hazard_kind kind_of() {
    const auto one = found<Fault>();
    REQUIRE(one.has_value());
    return one->kind;
}

}  // namespace

TEST_CASE("the checker reports each misuse of a bulk copy to another block by its name") {
    CHECK(!found<fault::none>());
    CHECK(kind_of<fault::no_wait>() == hazard_kind::uninitialised_read);  // the other block has not sent yet
    CHECK(kind_of<fault::no_fence>() == hazard_kind::missing_proxy_fence);
    CHECK(kind_of<fault::few_bytes>() == hazard_kind::wrong_byte_count);
    CHECK(kind_of<fault::sends_early>() == hazard_kind::overwritten_in_flight);
    CHECK(kind_of<fault::exits_early>() == hazard_kind::in_flight_at_exit);
}

TEST_CASE("the checker detects every mutation of an exchange by bulk copies") {
    const int all = rounds * 2 * rows;
    std::vector<float> in(all * columns, 1.0f), out(all * columns);
    check_synchronisation<sum_of_tiles<>>(
        "tiles to another block", {2}, {matrix<const float>(in.data(), all, columns), matrix(out.data(), all, columns)},
        200);
}
#endif
