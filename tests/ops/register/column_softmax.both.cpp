// Online softmax down columns, tile by tile, against sums in double precision. Some columns are masked fully, in part
// or at the start, and some have very large, very small and equal elements.
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/column_softmax.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows = 32, pieces = 3;

// The accumulated sums are those of the first row of probabilities, which rescaling must reach, too.
template <int Columns>
struct down {
    static constexpr int warps = 1;
    struct arguments {
        const float* scores;  // of all tiles
        float* column_sum;    // 16 x Columns: equal in all rows
        float* column_max;
        float* first;  // the first row of probabilities, of all tiles
        float scale;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            online_column_softmax<Columns> softmax(self, args.scale);
            warp_tile<float, 16, Columns> collected;
            fill(self, collected, 0.0f);
            for (int piece = 0; piece < pieces; ++piece) {
                warp_tile<float, rows, Columns> tile;
                load_rows_from(self, tile, [&](int row) { return args.scores + (piece * rows + row) * Columns; });
                softmax.exp_and_sum(self, tile, [&](const auto& factors) {
                    combine_with_columns(self, collected, factors, functional::multiply{});
                });
                column_values<float, Columns> first;
                map_indexed(self, tile, [](int row, int, float x) { return row == 0 ? x : 0.0f; });
                reduce_columns(self, first, tile, functional::add{}, 0.0f);
                combine_with_columns(self, collected, first, functional::add{});
            }
            const auto place = [&](float* to) { return [to](int row) { return to + row * Columns; }; };
            store_rows_to(self, place(args.first), collected);
            combine_with_columns(self, collected, softmax.finished_column_sum(self), [](float, float x) { return x; });
            store_rows_to(self, place(args.column_sum), collected);
            combine_with_columns(self, collected, softmax.column_max_log2(self), [](float, float x) { return x; });
            store_rows_to(self, place(args.column_max), collected);
        });
    }
};

template <int Columns>
void check_down(float scale) {
    const int all = rows * pieces;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Columns);
        buffer<float> scores(where, all * Columns);
        fill_random(scores.values, 11, -5.0f, 5.0f);
        for (int row = 0; row < all; ++row) {
            float* const one = &scores.values[row * Columns];
            one[1] = minus_infinity;
            if (row % 3 != 0) one[2] = minus_infinity;
            if (row < rows + 5) one[3] = minus_infinity;
            one[4] *= 2000.0f;
            one[5] += 1000.0f;
            one[6] = -7.0f;
        }
        buffer<float> column_sum(where, 16 * Columns, NAN), column_max(where, 16 * Columns, NAN),
            first(where, 16 * Columns, NAN);
        run<down<Columns>>(where, {1},
                           {scores.upload(), column_sum.upload(), column_max.upload(), first.upload(), scale}, 2);
        column_sum.download();
        column_max.download();
        first.download();
        for (int column = 0; column < Columns; ++column) {
            CAPTURE(column);
            double most = -INFINITY, sum = 0, of_first = 0;
            for (int row = 0; row < all; ++row) {
                most = std::max<double>(most, scale * scores.values[row * Columns + column]);
            }
            for (int row = 0; row < all && most > -INFINITY; ++row) {
                const double weight = std::exp(scale * scores.values[row * Columns + column] - most);
                sum += weight;
                if (row % rows == 0) of_first += weight;
            }
            const float found = column_max.values[column];
            if (most == -INFINITY) {
                CHECK(found == minus_infinity);
            } else {
                CHECK(found == doctest::Approx(most * log2_of_e).epsilon(1e-6));
            }
            CHECK(column_sum.values[column] == doctest::Approx(sum).epsilon(1e-3));
            CHECK(first.values[column] == doctest::Approx(of_first).epsilon(1e-3));
        }
    }
}

}  // namespace

TEST_CASE("online softmax down 8 and 16 columns, tile by tile") {
    check_down<8>(1.0f);
    check_down<16>(0.25f);
}
