// A row softmax in the register tiles of warps.
//
// A row of up to 128 columns fits a 16 x 128 tile. Out-of-bounds columns load as minus infinity, whose exponential is
// zero, so short rows need no special case.
#include <imbrex/imbrex.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace imbrex;

struct softmax_kernel {
    using tile = warp_tile<float, 16, 128>;
    static constexpr int warps = 4;

    struct arguments {
        matrix_view<const float> in;
        matrix_view<float> out;
        float scale;
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        block.each_warp([&](warp& self) {
            const int row = block.index().x * warps + self.index();
            tile scores;
            load(self, scores, args.in.tile<tile>(row, 0), minus_infinity);
            softmax(self, scores, args.scale);
            store(self, args.out.tile<tile>(row, 0), scores);
        });
    }
};

int main() {
    const int rows = 1000, columns = 100;
    const float scale = 0.5f;
    const world where = device_available() ? world::device : world::host;

    world_array<float> in(where, rows * columns);
    world_array<float> out(where, rows * columns, NAN);
    for (int i = 0; i < rows * columns; ++i) in.values[i] = std::sin(0.37f * i) * 20;

    launch<softmax_kernel>(
        where, {(rows + 63) / 64},
        {matrix<const float>(in.upload(), rows, columns), matrix(out.upload(), rows, columns), scale});
    out.download();

    double worst = 0;
    for (int row = 0; row < rows; ++row) {
        double most = -INFINITY, sum = 0;
        for (int i = 0; i < columns; ++i) most = std::max<double>(most, scale * in.values[row * columns + i]);
        for (int i = 0; i < columns; ++i) sum += std::exp(scale * in.values[row * columns + i] - most);
        for (int i = 0; i < columns; ++i) {
            const double expected = std::exp(scale * in.values[row * columns + i] - most) / sum;
            const double error = std::abs(expected - out.values[row * columns + i]);
            worst = error <= worst ? worst : error;
        }
    }
    std::printf("softmax of %d x %d in the %s world: largest error %.2g\n", rows, columns, name_of(where).c_str(),
                worst);
    return worst < 1e-5 ? 0 : 1;
}
