// All elements of a shared tile reduced to one value that every thread of the block gets. The elements are powers of
// two, so sums and products are exact in any order.
#include <ops/tools.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// The three reductions follow each other without further synchronisation, and the tile is filled anew before the last.
template <class T, int Rows, int Columns, int Warps>
struct block_reduction {
    using tile = warp_tile<T, 16, 8>;
    static constexpr int warps = Warps;
    static constexpr int results = 4;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> out;  // a row of tiles for each warp: maximum, sum, product, sum of ones
        T least;
    };
    struct shared_memory {
        shared_tile<T, Rows, Columns> tile;
        shared_vector<T, Warps> scratch;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        load(block, smem.tile, args.in.at(0, 0));
        block.sync();
        const T largest = reduce(block, smem.tile, functional::maximum{}, args.least, smem.scratch);
        const T sum = reduce(block, smem.tile, functional::add{}, T(0), smem.scratch);
        const T product = reduce(block, smem.tile, functional::multiply{}, T(1), smem.scratch);
        fill(block, smem.tile, T(1));
        block.sync();
        const T ones = reduce(block, smem.tile, functional::add{}, T(0), smem.scratch);
        block.each_warp([&](warp& self) {
            const auto tell = [&](int column, T value) {
                tile seen;
                fill(self, seen, value);
                store(self, args.out.template tile<tile>(self.index(), column), seen);
            };
            tell(0, largest);
            tell(1, sum);
            tell(2, product);
            tell(3, ones);
        });
    }
};

template <class T, int Rows, int Columns, int Warps>
void test_block_reduction() {
    using kernel = block_reduction<T, Rows, Columns, Warps>;
    constexpr int rows = 16 * Warps, columns = 8 * kernel::results;
    for (const world where : worlds()) {
        buffer<T> in(where, Rows * Columns), out(where, rows * columns, poison<T>());
        // Mostly ones, or the product would overflow.
        std::mt19937 generator(22);
        for (T& value : in.values) {
            const unsigned drawn = generator() % 64;
            value = drawn == 0 ? T(2) : drawn == 1 ? T(-2) : drawn < 30 ? T(-1) : T(1);
        }
        run<kernel>(where, {1, 1, 1},
                    {matrix(static_cast<const T*>(in.upload()), Rows, Columns), matrix(out.upload(), rows, columns),
                     T(-100000)},
                    8);
        out.download();
        T wanted[] = {T(-100000), T(0), T(1), T(Rows * Columns)};
        for (const T value : in.values) {
            wanted[0] = std::max(wanted[0], value);
            wanted[1] += value;
            wanted[2] *= value;
        }
        tally compared(name_of_shape<T>(where, Rows, Columns, Warps));
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < columns; ++column) {
                compared.expect_same(row, column, out.values[row * columns + column], wanted[column / 8]);
            }
        }
    }
}

TEST_CASE("reductions of a block") {
    test_block_reduction<float, 8, 4, 1>();
    test_block_reduction<float, 24, 40, 3>();
    test_block_reduction<float, 64, 64, 8>();
    test_block_reduction<std::int32_t, 8, 16, 4>();
    test_block_reduction<std::int32_t, 16, 20, 16>();
}

}  // namespace
