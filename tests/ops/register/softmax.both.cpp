// Softmax along rows, in one go and online, against sums in double precision.
#include <imbrex/ops/register/softmax.hpp>

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
                                           {matrix(static_cast<const float*>(in.send()), 2 * Rows, Columns),
                                            matrix(out.send(), 2 * Rows, Columns), scale},
                                           2);
        out.fetch();
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

// How the row maximum is computed.
enum class row_max_search { by_floats, by_integers, row_by_row };

// Rows arrive tile by tile; the output is, for each column of a tile, the weighted sum over the tiles.
template <int Rows, int Columns, class Scope, int RescaleThreshold, bool VoteFirst, softmax_wait_point WaitPoint,
          row_max_search Search>
struct online {
    using tile = register_tile<float, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const float> scores, values;
        matrix_view<float> out;
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
            online_softmax<Rows, Scope, RescaleThreshold, VoteFirst> weights(self, args.scale);
            for (int piece = 0; piece < args.pieces; ++piece) {
                tile scores, values;
                load(self, scores, args.scores.template tile<tile>(mine, piece));
                const auto rescale = [&](const auto& factors) {
                    combine_with_rows(self, sum, factors, functional::multiply{});
                };
                if constexpr (Search == row_max_search::row_by_row) {
                    // Called once, before earlier results are rescaled.
                    int done = 0;
                    const auto only_then = [&](const auto& factors) {
                        if (done == 1) rescale(factors);
                    };
                    weights.exp_and_sum_row_by_row(
                        self, scores, weights.check_row_max_sign(self), [&] { ++done; }, only_then);
                    if (done != 1) fill(self, sum, 0.0f);
                } else if constexpr (Search == row_max_search::by_integers) {
                    weights.template exp_and_sum<WaitPoint>(self, scores, weights.check_row_max_sign(self), rescale);
                } else if constexpr (WaitPoint == softmax_wait_point::none) {
                    weights.step(self, scores, sum);
                } else {
                    weights.template exp_and_sum<WaitPoint>(self, scores, rescale);
                }
                load(self, values, args.values.template tile<tile>(mine, piece));
                combine(self, scores, values, functional::multiply{});
                combine(self, sum, scores, functional::add{});
            }
            weights.finish(self, sum);
            store(self, args.out.template tile<tile>(mine, 0), sum);
            store(self, args.lse2 + mine * Rows, Rows, weights.lse2(self));
        });
    }
};

template <int Rows, int Columns, class Scope, int RescaleThreshold = 0, bool VoteFirst = false,
          softmax_wait_point WaitPoint = softmax_wait_point::none, row_max_search Search = row_max_search::by_floats>
void test_online(float scale, int pieces) {
    const int width = Columns * pieces;
    const std::size_t count = static_cast<std::size_t>(2) * Rows * width;
    for (const world where : worlds()) {
        buffer<float> scores(where, count), values(where, count), out(where, 2 * Rows * Columns, poison<float>()),
            lse2(where, 2 * Rows, poison<float>());
        fill_scores(scores.values, 2 * Rows, width, 13);
        // Rows with a nonnegative maximum take the integer path: here all rows of every other warp.
        for (int row = 0; Search != row_max_search::by_floats && row < 2 * Rows; ++row) {
            if (row / 16 % 2 == 1) scores.values[static_cast<std::size_t>(row) * width] = row % 3 == 0 ? 0.0f : 0.5f;
        }
        fill_random(values.values, 14, 0.5f, 1.5f);
        run<online<Rows, Columns, Scope, RescaleThreshold, VoteFirst, WaitPoint, Search>>(
            where, {1, 1, 1},
            {matrix(static_cast<const float*>(scores.send()), 2 * Rows, width),
             matrix(static_cast<const float*>(values.send()), 2 * Rows, width), matrix(out.send(), 2 * Rows, Columns),
             lse2.send(), scale, pieces},
            2);
        out.fetch();
        lse2.fetch();
        tally compared(str_cat(name_of_shape<float>(where, Rows, Columns, Scope::warps), ", ", pieces, " tiles"));
        for (int row = 0; row < 2 * Rows; ++row) {
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
template <class Scope, int RescaleThreshold, bool VoteFirst>
struct scores_again {
    using tile = register_tile<float, 64, 32, Scope>;
    static constexpr int warps = Scope::warps;
    static constexpr int times = 4;
    struct arguments {
        matrix_view<const float> scores;
        float* factors;  // of 64 rows, each time
        float scale;
        float more[times];
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            online_softmax<64, Scope, RescaleThreshold, VoteFirst> weights(self, args.scale);
            for (int i = 0; i < times; ++i) {
                tile scores;
                load(self, scores, args.scores.template tile<tile>(0, 0));
                map(self, scores, [&](float x) { return x + args.more[i]; });
                hw::row_fragment<float, 64, Scope::warps> factors;
                fill(self, factors, 1.0f);
                weights.exp_and_sum(self, scores, [&](const auto& told) { factors = told; });
                store(self, args.factors + 64 * i, 64, factors);
            }
        });
    }
};

// Scores arrive unchanged, again, smaller, and larger by `more`: the last factor is `wanted`.
template <int RescaleThreshold, bool VoteFirst = false>
void test_again(float scale, float more, double wanted) {
    for (const world where : worlds()) {
        using kernel = scores_again<warpgroup, RescaleThreshold, VoteFirst>;
        buffer<float> scores(where, 64 * 32), factors(where, kernel::times * 64, poison<float>());
        fill_random(scores.values, 15, -9.0f, 9.0f);
        run<kernel>(
            where, {1, 1, 1},
            {matrix(static_cast<const float*>(scores.send()), 64, 32), factors.send(), scale, {0, 0, -0.7f, more}}, 2);
        factors.fetch();
        tally compared(str_cat(name_of(where), ", scale ", scale, ", more ", more));
        for (int i = 64; i < kernel::times * 64; ++i) {
            const float value = factors.values[i];
            const bool same = i < 3 * 64 || wanted == 1;
            compared.expect(same ? value == 1.0f : near(value, wanted, 1e-5, 0), "row", i % 64, "time", i / 64, "is",
                            value);
        }
    }
}

TEST_CASE("online softmax: an unchanged row maximum gives a rescaling factor of exactly 1") {
    for (const float scale : {1.0f, 0.088388f, 0.3f}) test_again<0>(scale, 2.0f, std::exp(-2.0 * scale));
}

TEST_CASE("online softmax, lazy rescaling: rescales only if the row maximum grows by more than the threshold") {
    test_again<8>(1.0f, 5.5f, 1);  // 2^8 is e^5.545
    test_again<8>(1.0f, 5.6f, std::exp(-5.6));
    test_again<8, true>(0.25f, 22.0f, 1);
    test_again<8, true>(0.25f, 23.0f, std::exp(-5.75));
}

TEST_CASE("softmax of a tile in one go") {
    test_at_once<16, 8, warp>(1.0f);
    test_at_once<32, 104, warp>(0.125f);
    test_at_once<64, 8, warpgroup>(2.0f);
    test_at_once<64, 256, warpgroup>(0.3f);
    test_at_once<128, 128, warpgroup>(1.0f);
}

TEST_CASE("online softmax") {
    test_online<16, 8, warp>(1.0f, 1);
    test_online<16, 8, warp>(0.25f, 12);
    test_online<32, 24, warp>(1.0f, 5);
    test_online<64, 64, warpgroup>(0.125f, 4);
    test_online<128, 16, warpgroup>(2.0f, 3);
    test_online<16, 8, warp, 8>(0.25f, 12);
    test_online<64, 64, warpgroup, 8>(0.125f, 4);
    test_online<64, 16, warpgroup, 8>(1.0f, 6);
    test_online<64, 16, warpgroup, 8, true>(1.0f, 6);
    test_online<16, 8, warp, 8, true>(0.25f, 12);
    test_online<64, 80, warpgroup, 0, false, softmax_wait_point::in_first_row>(0.125f, 4);
    test_online<64, 16, warpgroup, 0, false, softmax_wait_point::in_first_row>(1.0f, 6);
    test_online<64, 64, warpgroup, 0, false, softmax_wait_point::after_row_max>(0.125f, 4);
}

TEST_CASE("online softmax: the sign check gives the same result, for rows below and above zero") {
    test_online<16, 8, warp, 0, false, softmax_wait_point::none, row_max_search::by_integers>(0.25f, 12);
    test_online<32, 24, warp, 0, false, softmax_wait_point::in_first_row, row_max_search::by_integers>(1.0f, 5);
    test_online<64, 112, warpgroup, 0, false, softmax_wait_point::after_row_max, row_max_search::by_integers>(0.125f,
                                                                                                              4);
    test_online<128, 16, warpgroup, 0, false, softmax_wait_point::in_first_row, row_max_search::by_integers>(2.0f, 3);
    test_online<64, 64, warpgroup, 8, false, softmax_wait_point::in_first_row, row_max_search::by_integers>(0.125f, 4);
    test_online<64, 16, warpgroup, 8, true, softmax_wait_point::after_row_max, row_max_search::by_integers>(1.0f, 6);
}

template <int Rows, int Columns, class Scope, int RescaleThreshold = 0>
void test_row_by_row(float scale, int pieces) {
    test_online<Rows, Columns, Scope, RescaleThreshold, false, softmax_wait_point::none, row_max_search::row_by_row>(
        scale, pieces);
}

TEST_CASE("online softmax: row by row, with a callback in between") {
    test_row_by_row<16, 16, warp>(0.25f, 12);
    test_row_by_row<32, 24, warp>(1.0f, 5);
    test_row_by_row<64, 80, warpgroup>(0.125f, 4);
    test_row_by_row<64, 128, warpgroup>(0.25f, 2);
    test_row_by_row<128, 16, warpgroup>(2.0f, 3);
    test_row_by_row<64, 64, warpgroup, 8>(0.125f, 4);
    test_row_by_row<64, 16, warpgroup, 8>(1.0f, 6);
}

}  // namespace
