// Softmax along rows, in one go and online, against sums in double precision.
#include <imbrex/ops/register/softmax.hpp>

#include <ops/online_softmax.hpp>
#include <ops/softmax_rows.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int Rows, int Columns, class Scope>
struct at_once {
    using tile = register_tile<float, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const float> in;
        matrix_view<float> out;
        float scale;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            tile one;
            load(self, one, args.in.template tile<tile>(self.index(), 0));
            softmax(self, one, args.scale);
            store(self, args.out.template tile<tile>(self.index(), 0), one);
        });
    }
};

template <int Rows, int Columns, class Scope>
void test_at_once(float scale) {
    for (const world where : worlds()) {
        buffer<float> in(where, 2 * Rows * Columns), out(where, 2 * Rows * Columns, poison<float>());
        fill_scores(in.values, 2 * Rows, Columns, 12);
        run<at_once<Rows, Columns, Scope>>(where, {1, 1, 1},
                                           {matrix(static_cast<const float*>(in.upload()), 2 * Rows, Columns),
                                            matrix(out.upload(), 2 * Rows, Columns), scale},
                                           2);
        out.download();
        tally compared(str_cat(name_of_shape<float>(where, Rows, Columns, Scope::warps), ", scale ", scale));
        for (int row = 0; row < 2 * Rows; ++row) {
            const row_of_probabilities wanted = exp_and_sum(in.values.data() + row * Columns, Columns, scale);
            for (int column = 0; column < Columns; ++column) {
                const float value = out.values[row * Columns + column];
                compared.expect(near(value, wanted.weights[column], tolerance(wanted.largest), 1e-30), "row", row,
                                "column", column, "is", value, "not", wanted.weights[column]);
            }
        }
    }
}

struct by_step {
    template <class Scope, class Softmax, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Softmax& softmax, Tile& scores, Tile& sum) const {
        softmax.step(self, scores, sum);
    }
};

template <int Rows, int Columns, class Scope>
void test_steps(float scale, int pieces) {
    test_online_softmax<online_softmax<Rows, Scope>, Columns, Scope, by_step>(scale, pieces);
}

TEST_CASE("online softmax: an unchanged row maximum gives a rescaling factor of exactly 1") {
    for (const float scale : {1.0f, 0.088388f, 0.3f})
        test_rescale_factors<online_softmax<64, warpgroup>>(scale, 2.0f, std::exp(-2.0 * scale));
}

TEST_CASE("softmax of a tile in one go") {
    test_at_once<16, 8, warp>(1.0f);
    test_at_once<32, 104, warp>(0.125f);
    test_at_once<64, 8, warpgroup>(2.0f);
    test_at_once<64, 256, warpgroup>(0.3f);
    test_at_once<128, 128, warpgroup>(1.0f);
}

TEST_CASE("online softmax") {
    test_steps<16, 8, warp>(1.0f, 1);
    test_steps<16, 8, warp>(0.25f, 12);
    test_steps<32, 24, warp>(1.0f, 5);
    test_steps<64, 64, warpgroup>(0.125f, 4);
    test_steps<128, 16, warpgroup>(2.0f, 3);
}

}  // namespace
