// An elementwise map: a user-defined function on every element of a matrix.
//
// Each warp of a block loads one 16 x 64 tile into registers, maps it, and stores it. The matrix may have any size: the
// out-of-bounds part of a tile is neither loaded nor stored.
#include <imbrex/imbrex.hpp>

#include <cmath>
#include <cstdio>

using namespace imbrex;

// The function of an element. IMBREX_FN makes it callable in both worlds.
struct silu {
    IMBREX_FN float operator()(float x) const { return x / (1.0f + std::exp(-x)); }
};

template <class Function>
struct map_kernel {
    using tile = warp_tile<float, 16, 64>;
    static constexpr int warps = 4;

    struct arguments {
        matrix_view<const float> in;
        matrix_view<float> out;
        Function function;
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        block.each_warp([&](warp& self) {
            const int row = block.index().y * warps + self.index();
            const int column = block.index().x;
            tile values;
            load(self, values, args.in.template tile<tile>(row, column));
            map(self, values, args.function);
            store(self, args.out.template tile<tile>(row, column), values);
        });
    }
};

int main() {
    using kernel = map_kernel<silu>;
    const int rows = 1000, columns = 300;
    const world where = device_available() ? world::device : world::host;

    world_array<float> in(where, rows * columns);
    world_array<float> out(where, rows * columns, NAN);
    for (int i = 0; i < rows * columns; ++i) in.values[i] = std::sin(0.1f * i) * 8;

    const grid_dim grid{(columns + 63) / 64, (rows + 63) / 64, 1};
    launch<kernel>(where, grid,
                   {matrix<const float>(in.upload(), rows, columns), matrix(out.upload(), rows, columns), {}});
    out.download();

    double worst = 0;
    for (int i = 0; i < rows * columns; ++i) {
        const double x = in.values[i];
        const double error = std::abs(x / (1 + std::exp(-x)) - out.values[i]);
        worst = error <= worst ? worst : error;
    }
    std::printf("silu of %d x %d in the %s world: largest error %.2g\n", rows, columns, name_of(where).c_str(), worst);
    return worst < 1e-5 ? 0 : 1;
}
