// A reduction over the whole grid: deterministic, in the order of the blocks, and repeatable.
#include <ops/tools.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T, class Op>
struct grid_reduction {
    static constexpr int warps = 2;
    struct arguments {
        matrix_view<const T> in;  // a tile for each block
        grid_scratch<T> scratch;
        T* result;
        T identity;
    };
    struct shared_memory {
        shared_tile<T, 8, 8> tile;
        shared_vector<T, warps> exchange;
        shared_vector<int, 1> flag;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const grid_dim at = block.index(), grid = block.count();
        const int number = at.x + grid.x * (at.y + grid.y * at.z);
        load(block, smem.tile, args.in.template tile<shared_tile<T, 8, 8>>(number, 0));
        block.sync();
        const T mine = reduce(block, smem.tile, Op{}, args.identity, smem.exchange);
        reduce_grid(block, mine, Op{}, args.identity, args.scratch, args.result, smem.flag);
    }
};

// Each block's tile has one element that is not the identity, so its own reduction is exact; across blocks a float sum
// rounds, and rounds differently in every other order.
template <class T, class Op>
void test_grid_reduction(const std::string& of, grid_dim grid, T identity) {
    const int blocks = grid.x * grid.y * grid.z;
    for (const world where : worlds()) {
        buffer<T> in(where, 64 * static_cast<std::size_t>(blocks), identity), drawn(world::host, blocks),
            values(where, blocks, poison<T>()), result(where, 1, poison<T>());
        buffer<int> counter(where, 1, 0);
        fill_random(drawn.values, 23, -1000.0f, 1000.0f);
        std::mt19937 generator(24);
        T wanted = identity;
        for (int i = 0; i < blocks; ++i) {
            in.values[64 * i + generator() % 64] = drawn.values[i];
            wanted = Op{}(wanted, drawn.values[i]);
        }
        const typename grid_reduction<T, Op>::arguments arguments{
            matrix(static_cast<const T*>(in.upload()), 8 * blocks, 8),
            {values.upload(), counter.upload()},
            result.upload(),
            identity};
        for (int replay = 0; replay < 4; ++replay) {
            result.values[0] = poison<T>();
            result.upload();
            run<grid_reduction<T, Op>>(where, grid, arguments, 4);
            result.download();
            counter.download();
            INFO(name_of(where), ", ", of, ", ", blocks, " blocks, launch ", replay);
            CHECK(same_bits(result.values[0], wanted));
            CHECK(counter.values[0] == 0);
        }
        values.download();
        tally kept(str_cat(name_of(where), ", ", of, ", the blocks' own values"));
        for (int i = 0; i < blocks; ++i) kept.expect_same(i, 0, values.values[i], drawn.values[i]);
    }
}

TEST_CASE("reductions of a grid") {
    test_grid_reduction<float, functional::add>("sum", {1, 1, 1}, 0.0f);
    test_grid_reduction<float, functional::add>("sum", {37, 1, 1}, 0.0f);
    test_grid_reduction<float, functional::add>("sum", {5, 3, 4}, 0.0f);
    test_grid_reduction<float, functional::maximum>("largest", {4, 9, 2}, minus_infinity);
    test_grid_reduction<std::int32_t, functional::add>("integers", {200, 1, 1}, 0);
}

}  // namespace
