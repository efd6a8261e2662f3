// Tests of an online softmax class: results against sums in double precision, and rescaling factors.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <ops/softmax_rows.hpp>

#include <cmath>
#include <cstddef>

namespace imbrex_test {

// Rows arrive tile by tile; the output is, for each column of a tile, the weighted sum over the tiles. Advance is a
// functor (scope, softmax, scores, sum) that turns one tile of scores into probabilities and rescales the sum.
template <class Softmax, int Columns, class Scope, class Advance>
struct online_softmax_kernel {
    static constexpr int rows = Softmax::rows;
    using tile = imbrex::register_tile<float, rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        imbrex::matrix_view<const float> scores, values;
        imbrex::matrix_view<float> out;
        float* lse2;
        float scale;
        int pieces;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            const int mine = self.index();
            tile sum;
            fill(self, sum, 0.0f);
            Softmax weights(self, args.scale);
            for (int piece = 0; piece < args.pieces; ++piece) {
                tile scores, values;
                load(self, scores, args.scores.template tile<tile>(mine, piece));
                Advance{}(self, weights, scores, sum);
                load(self, values, args.values.template tile<tile>(mine, piece));
                combine(self, scores, values, imbrex::functional::multiply{});
                combine(self, sum, scores, imbrex::functional::add{});
            }
            weights.finish(self, sum);
            store(self, args.out.template tile<tile>(mine, 0), sum);
            store(self, args.lse2 + mine * rows, rows, weights.lse2(self));
        });
    }
};

// `nonnegative_rows`: every other warp has rows with a nonnegative maximum only, which integer comparison is for.
template <class Softmax, int Columns, class Scope, class Advance>
void test_online_softmax(float scale, int pieces, bool nonnegative_rows = false) {
    using namespace imbrex;
    constexpr int rows = Softmax::rows;
    const int width = Columns * pieces;
    const std::size_t count = static_cast<std::size_t>(2) * rows * width;
    for (const world where : worlds()) {
        buffer<float> scores(where, count), values(where, count), out(where, 2 * rows * Columns, poison<float>()),
            lse2(where, 2 * rows, poison<float>());
        fill_scores(scores.values, 2 * rows, width, 13);
        for (int row = 0; nonnegative_rows && row < 2 * rows; ++row) {
            if (row / 16 % 2 == 1) scores.values[static_cast<std::size_t>(row) * width] = row % 3 == 0 ? 0.0f : 0.5f;
        }
        fill_random(values.values, 14, 0.5f, 1.5f);
        run<online_softmax_kernel<Softmax, Columns, Scope, Advance>>(
            where, {1, 1, 1},
            {matrix(static_cast<const float*>(scores.upload()), 2 * rows, width),
             matrix(static_cast<const float*>(values.upload()), 2 * rows, width),
             matrix(out.upload(), 2 * rows, Columns), lse2.upload(), scale, pieces},
            2);
        out.download();
        lse2.download();
        tally compared(str_cat(name_of_shape<float>(where, rows, Columns, Scope::warps), ", ", pieces, " tiles"));
        for (int row = 0; row < 2 * rows; ++row) {
            const row_of_probabilities wanted = exp_and_sum(scores.values.data() + row * width, width, scale);
            const double error = 2 * tolerance(wanted.largest);
            for (int column = 0; column < Columns; ++column) {
                double sum = 0;
                for (int i = column; i < width; i += Columns) sum += wanted.weights[i] * values.values[row * width + i];
                const float value = out.values[row * Columns + column];
                compared.expect(near(value, sum, error, 1e-30), "row", row, "column", column, "is", value, "not", sum);
            }
            compared.expect(near(lse2.values[row], wanted.lse2, 4e-7, error), "row", row, "lse2 is", lse2.values[row],
                            "not", wanted.lse2);
        }
    }
}

// The rescaling factors when the same scores arrive again, and with a constant added to all of them.
template <class Softmax, class Scope>
struct rescale_factors_kernel {
    using tile = imbrex::register_tile<float, 64, 32, Scope>;
    static constexpr int warps = Scope::warps;
    static constexpr int times = 4;
    struct arguments {
        imbrex::matrix_view<const float> scores;
        float* factors;  // of 64 rows, each time
        float scale;
        float more[times];
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            Softmax weights(self, args.scale);
            for (int i = 0; i < times; ++i) {
                tile scores;
                load(self, scores, args.scores.template tile<tile>(0, 0));
                map(self, scores, [&](float x) { return x + args.more[i]; });
                imbrex::hw::row_fragment<float, 64, Scope::warps> factors;
                fill(self, factors, 1.0f);
                weights.exp_and_sum(self, scores, [&](const auto& reported) { factors = reported; });
                store(self, args.factors + 64 * i, 64, factors);
            }
        });
    }
};

// Scores arrive unchanged, again, smaller, and larger by `more`: the last factor is `wanted`.
template <class Softmax>
void test_rescale_factors(float scale, float more, double wanted) {
    using namespace imbrex;
    for (const world where : worlds()) {
        using kernel = rescale_factors_kernel<Softmax, warpgroup>;
        buffer<float> scores(where, 64 * 32), factors(where, kernel::times * 64, poison<float>());
        fill_random(scores.values, 15, -9.0f, 9.0f);
        run<kernel>(
            where, {1, 1, 1},
            {matrix(static_cast<const float*>(scores.upload()), 64, 32), factors.upload(), scale, {0, 0, -0.7f, more}},
            2);
        factors.download();
        tally compared(str_cat(name_of(where), ", scale ", scale, ", more ", more));
        for (int i = 64; i < kernel::times * 64; ++i) {
            const float value = factors.values[i];
            const bool same = i < 3 * 64 || wanted == 1;
            compared.expect(same ? value == 1.0f : near(value, wanted, 1e-5, 0), "row", i % 64, "time", i / 64, "is",
                            value);
        }
    }
}

}  // namespace imbrex_test
