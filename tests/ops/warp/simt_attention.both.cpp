// Tests of simt_qk, simt_online_softmax and simt_pv over blocks of 16 rows: small integers, whose sums are exact. Rows
// that do not exist are NaN.
#include <imbrex/core/functional.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/simt_attention.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows_at_most = 16, keys = 48, columns_at_most = 32, stride = 70;

template <class T>
struct products {
    static constexpr int warps = 1;
    struct arguments {
        const float* left;
        const T* right;
        const int* blocks;
        float* scores;
        T* sums;
        int rows, begin, end, depth, columns;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const auto place = [&](int number) { return args.right + args.blocks[number] * 16 * stride; };
            const paged_row_blocks<decltype(place)> others{place, stride, args.begin, args.end};
            warp_tile<float, rows_at_most, keys> scores;
            simt_qk(
                self, scores, args.rows, [&](int row) { return args.left + row * args.depth; }, others, args.depth);
            simt_store_rows(
                self, [&](int row) { return args.scores + row * keys; }, scores, args.rows, keys);
            warp_tile<float, rows_at_most, columns_at_most> sums;
            fill(self, sums, 1.0f);
            simt_pv(self, sums, scores, args.rows, others, args.columns);
            simt_store_rows(
                self, [&](int row) { return args.sums + row * columns_at_most; }, sums, args.rows, args.columns);
        });
    }
};

template <class T>
void check_products(int rows, int begin, int end, int depth, int columns) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(rows);
        CAPTURE(begin);
        CAPTURE(end);
        CAPTURE(depth);
        CAPTURE(columns);
        buffer<float> left(where, rows * depth), scores(where, rows_at_most * keys, NAN);
        buffer<T> right(where, 5 * 16 * stride, convert<T>(std::numeric_limits<float>::quiet_NaN()));
        buffer<T> sums(where, rows_at_most * columns_at_most, convert<T>(-7.0f));
        buffer<int> blocks(where, 3);
        blocks.values = {3, 4, 1};
        const auto at = [&](int key, int i) {
            return static_cast<std::size_t>((blocks.values[key / 16] * 16 + key % 16) * stride + i);
        };
        for (std::size_t i = 0; i < left.values.size(); ++i) left.values[i] = static_cast<float>(i % 3) - 1;
        for (int key = begin; key < end; ++key) {
            for (int i = 0; i < stride; ++i) {
                right.values[at(key, i)] = convert<T>(static_cast<float>((key * 5 + i) % 4) - 1);
            }
        }
        run<products<T>>(where, {1},
                         {left.upload(), right.upload(), blocks.upload(), scores.upload(), sums.upload(), rows, begin,
                          end, depth, columns});
        scores.download();
        sums.download();
        const auto number = [&](int key, int i) { return convert<float>(right.values[at(key, i)]); };
        int wrong = 0;
        for (int row = 0; row < rows_at_most; ++row) {
            std::vector<float> expected(columns_at_most, 1.0f);
            for (int key = 0; key < keys && row < rows; ++key) {
                float score = 0;
                for (int i = 0; i < depth && key >= begin && key < end; ++i) {
                    score += left.values[row * depth + i] * number(key, i);
                }
                wrong += scores.values[row * keys + key] != score;
                for (int i = 0; i < columns && key >= begin && key < end; ++i) expected[i] += score * number(key, i);
            }
            for (int i = 0; i < columns_at_most; ++i) {
                const bool written = row < rows && i < columns;
                const T wanted = convert<T>(written ? expected[i] : -7.0f);
                wrong += convert<float>(sums.values[row * columns_at_most + i]) != convert<float>(wanted);
            }
        }
        CHECK(wrong == 0);
    }
}

struct softmax_in_steps {
    static constexpr int warps = 1;
    struct arguments {
        const float* scores;  // two tiles
        float* weights;
        float* numbers;  // row_max, row_sum and corrections, 16 each, after each step
        int rows;
        float factor;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            row_values<float, 16, warp> largest, sums, corrections;
            fill(self, largest, -std::numeric_limits<float>::infinity());
            fill(self, sums, 0.0f);
            for (int step = 0; step < 2; ++step) {
                warp_tile<float, 16, keys> scores;
                hw::visit(
                    self, hw::use::write, source::current(),
                    [&](int row, int column, float& x) { x = args.scores[(step * 16 + row) * keys + column]; }, scores);
                simt_online_softmax(self, scores, args.rows, args.factor, largest, sums, corrections);
                simt_store_rows(
                    self, [&](int row) { return args.weights + (step * 16 + row) * keys; }, scores, args.rows, keys);
                float* const numbers = args.numbers + step * 48;
                hw::visit_rows(
                    self, hw::use::read, source::current(),
                    [&](int row, const float& most, const float& sum, const float& correction) {
                        numbers[row] = most, numbers[16 + row] = sum, numbers[32 + row] = correction;
                    },
                    largest, sums, corrections);
            }
        });
    }
};

}  // namespace

TEST_CASE("Q K^T and P V over blocks of rows") {
    for (const int rows : {1, 2, 3, 5, 7, 8, 9, 16}) {
        check_products<float>(rows, 0, 48, 64, 32);
        check_products<float>(rows, 3, 41, 24, 24);
        check_products<bf16>(rows, 17, 48, 32, 16);
        check_products<fp16>(rows, 5, 7, 8, 8);
    }
    check_products<float>(4, 33, 33, 16, 8);
    check_products<float>(16, 0, 16, 40, 32);
}

TEST_CASE("the online softmax follows the row maximum, and fully masked rows are zero") {
    constexpr float factor = 0.75f, none = -std::numeric_limits<float>::infinity();
    for (const world where : worlds()) {
        for (const int rows : {1, 6, 16}) {
            CAPTURE(name_of(where));
            CAPTURE(rows);
            buffer<float> scores(where, 2 * 16 * keys), weights(where, scores.values.size(), NAN), numbers(where, 96);
            fill_random(scores.values, 3, -30, 30);
            std::fill_n(scores.values.begin(), keys, none);  // the first row is masked in the first tile
            for (std::size_t i = 0; i < scores.values.size(); i += 5) scores.values[i] = none;
            if (rows > 2) std::fill_n(scores.values.begin() + 18 * keys, keys, none);  // the third in the second tile
            if (rows > 3) {
                std::fill_n(scores.values.begin() + 3 * keys, keys, none);  // the fourth in both
                std::fill_n(scores.values.begin() + 19 * keys, keys, none);
            }
            run<softmax_in_steps>(where, {1}, {scores.upload(), weights.upload(), numbers.upload(), rows, factor});
            weights.download();
            numbers.download();
            for (int row = 0; row < rows; ++row) {
                CAPTURE(row);
                float largest = none;
                double sum = 0;
                for (int step = 0; step < 2; ++step) {
                    const float* const own = &scores.values[(step * 16 + row) * keys];
                    const float before = largest;
                    for (int i = 0; i < keys; ++i) largest = std::max(largest, own[i]);
                    const double shift = largest == none ? 0 : largest;
                    const double correction = std::exp2((before - shift) * factor);
                    sum *= correction;
                    double worst = 0;
                    for (int i = 0; i < keys; ++i) {
                        const double weight = std::exp2((own[i] - shift) * factor);
                        const double error = std::abs(weights.values[(step * 16 + row) * keys + i] - weight);
                        worst = std::max(worst, std::isnan(error) ? INFINITY : error / (weight + 1e-37));
                        sum += weight;
                    }
                    CHECK(worst < 4e-6);
                    const float* const found = &numbers.values[step * 48 + row];
                    CHECK(found[0] == largest);
                    CHECK(found[16] == doctest::Approx(sum).epsilon(1e-6));
                    // Corrections of rows that have seen nothing do not matter: their sums are zero.
                    if (largest != none) CHECK(found[32] == doctest::Approx(correction).epsilon(1e-5));
                }
            }
        }
    }
}
