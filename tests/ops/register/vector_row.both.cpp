// Vectorised rows: loads from and stores to arbitrary addresses, aligned and unaligned, functions of elements, rows and
// columns, and row reductions, of whole rows and of their first columns, at every width, against plain loops.
#include <imbrex/ops/register/vector_row.hpp>

#include "worlds.hpp"

#include <cmath>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// out = row maximum - x * column factor, rows taken from the last to the first; every third row does not exist.
template <class T, int Rows, int Columns, row_alignment Known>
struct turn_over {
    static constexpr int warps = 2;  // each has its own rows
    using tile = vector_row_tile<T, Rows, Columns>;
    struct arguments {
        const T* in;
        const float* factors;
        float* out;
        int columns, stride;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int first = self.index() * Rows;
            tile x;
            load_rows_from<Known>(
                self, x,
                [&](int row) {
                    return (first + row) % 3 == 2 ? nullptr : args.in + (Rows - 1 - row + first) * args.stride;
                },
                args.columns);
            vector_row_column_values<float, Columns> factors;
            load<Known>(self, factors, args.factors, args.columns);
            vector_row_values<tile> most;
            fill(self, most, 0.0f);
            fold_rows(self, most, x, functional::maximum{});
            finish_rows(self, most, functional::maximum{});
            map(self, most, [](float value) { return value + 1; });
            vector_row_tile<float, Rows, Columns> result;
            transform(
                self, result, [](float a, float b, float c) { return a - b * c; }, most, x, factors);
            store_rows_to<Known>(
                self,
                [&](int row) { return (first + row) % 5 == 4 ? nullptr : args.out + (first + row) * args.stride; },
                result, args.columns);
        });
    }
};

template <class T, int Rows, int Columns, row_alignment Known>
void check_turned(int columns, int stride) {
    using kernel = turn_over<T, Rows, Columns, Known>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Columns);
        CAPTURE(columns);
        buffer<T> in(where, static_cast<std::size_t>(2 * Rows * stride));
        buffer<float> factors(where, static_cast<std::size_t>(columns)), out(where, in.values.size(), -77.0f);
        fill_random(in.values, 1, 0, 9);
        fill_random(factors.values, 2);
        run<kernel>(where, {1}, {in.upload(), factors.upload(), out.upload(), columns, stride});
        out.download();
        bool right = true;
        for (int row = 0; row < 2 * Rows; ++row) {
            const int first = row / Rows * Rows, from = Rows - 1 - row % Rows + first;
            const auto value = [&](int i) {
                return row % 3 == 2 ? 0.0f : convert<float>(in.values[from * stride + i]);
            };
            float most = 0;
            for (int i = 0; i < columns; ++i) most = value(i) > most ? value(i) : most;
            for (int i = 0; i < stride; ++i) {
                const float found = out.values[row * stride + i];
                const bool written = i < columns && row % 5 != 4;
                const float wanted = written ? most + 1 - value(i) * factors.values[i] : -77.0f;
                right = right && std::fabs(found - wanted) <= (written ? 1e-5f : 0.0f);
            }
        }
        CHECK(right);
    }
}

// All lanes get the value of the only row.
struct sum_of_row {
    static constexpr int warps = 1;
    using tile = vector_row_tile<float, 1, 512>;
    struct arguments {
        const float* in;
        float* out;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            tile x;
            load_rows_from<row_alignment::aligned>(
                self, x, [&](int) { return args.in; }, 512);
            vector_row_values<tile> sum;
            fill(self, sum, 0.0f);
            fold_rows(self, sum, x, functional::add{});
            finish_rows(self, sum, functional::add{});
            const float total = row_value(self, sum);
            transform(
                self, x, [=](float a) { return a + total; }, x);
            store_rows_to<row_alignment::aligned>(
                self, [&](int) { return args.out; }, x, 512);
        });
    }
};

// out = x + 10 * (number of elements less than 2 in the first columns) + the row's limit 2 - column value 0.5 + 100 *
// column value 3: a fold over some columns with another value of the row, filled values, and five arguments.
template <class T, int Rows, int Columns, row_alignment Known>
struct count_below {
    static constexpr int warps = 1;
    using tile = vector_row_tile<T, Rows, Columns>;
    struct arguments {
        const T* in;
        float* out;
        int columns;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            tile x;
            load_rows_from<row_alignment::aligned>(
                self, x, [&](int row) { return args.in + row * Columns; }, Columns);
            vector_row_values<tile> limit, count, twice;
            fill(self, limit, 2.0f);
            fill(self, count, 0.0f);
            fold_rows<Known>(
                self, count, x, [](float sum, float a, float most) { return sum + (a < most ? 1.0f : 0.0f); }, limit,
                args.columns);
            finish_rows(self, count, functional::add{});
            fill(self, twice, 2.0f);
            combine(self, twice, count, [](float a, float b) { return 5 * a * b; });
            vector_row_column_values<T, Columns> half;
            fill(self, half, convert<T>(0.5f));
            vector_row_column_values<float, Columns> three;
            fill(self, three, 3.0f);
            vector_row_tile<float, Rows, Columns> result;
            transform(
                self, result, [](float a, float b, float c, float d, float e) { return a + b + c - d + 100 * e; }, x,
                twice, limit, half, three);
            store_rows_to<row_alignment::aligned>(
                self, [&](int row) { return args.out + row * Columns; }, result, Columns);
        });
    }
};

template <class T, int Rows, int Columns, row_alignment Known>
void check_count_below(int columns) {
    using kernel = count_below<T, Rows, Columns, Known>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Columns);
        CAPTURE(columns);
        buffer<T> in(where, Rows * Columns);
        buffer<float> out(where, in.values.size());
        fill_random(in.values, 1, 0, 9);
        run<kernel>(where, {1}, {in.upload(), out.upload(), columns});
        out.download();
        bool right = true;
        for (int row = 0; row < Rows; ++row) {
            int count = 0;
            for (int i = 0; i < Columns && i < columns; ++i) count += convert<float>(in.values[row * Columns + i]) < 2;
            for (int i = 0; i < Columns; ++i) {
                const float wanted = convert<float>(in.values[row * Columns + i]) + 10.0f * count + 2 - 0.5f + 300;
                right = right && std::fabs(out.values[row * Columns + i] - wanted) <= 1e-3f;
            }
        }
        CHECK(right);
    }
}

}  // namespace

TEST_CASE("folds over the first columns with another value of the row, filled values, five arguments") {
    for (const int columns : {-8, 0, 8, 56, 64, 72}) {
        check_count_below<bf16, 4, 64, row_alignment::aligned>(columns);
        check_count_below<float, 2, 512, row_alignment::aligned>(columns);
    }
    for (const int columns : {-5, 0, 1, 63, 64, 300}) {
        check_count_below<fp16, 8, 64, row_alignment::unaligned>(columns);
        check_count_below<bf16, 1, 256, row_alignment::unaligned>(columns);
    }
}

TEST_CASE("aligned rows, at every width, whole and in part") {
    check_turned<bf16, 32, 8, row_alignment::aligned>(8, 8);
    check_turned<bf16, 16, 64, row_alignment::aligned>(64, 64);
    check_turned<fp16, 4, 64, row_alignment::aligned>(40, 48);
    check_turned<float, 6, 128, row_alignment::aligned>(128, 132);
    check_turned<bf16, 3, 256, row_alignment::aligned>(248, 256);
    check_turned<bf16, 1, 1024, row_alignment::aligned>(1000, 1008);
    check_turned<fp16, 3, 512, row_alignment::aligned>(264, 264);
}

TEST_CASE("unaligned rows") {
    check_turned<bf16, 16, 64, row_alignment::unaligned>(61, 63);
    check_turned<fp16, 3, 256, row_alignment::unaligned>(255, 257);
    check_turned<float, 1, 512, row_alignment::unaligned>(301, 301);
    check_turned<bf16, 2, 256, row_alignment::unaligned>(1, 3);
}

TEST_CASE("the value of the only row") {
    for (const world where : worlds()) {
        buffer<float> in(where, 512), out(where, 512);
        for (int i = 0; i < 512; ++i) in.values[i] = static_cast<float>(i % 7);
        float total = 0;
        for (const float one : in.values) total += one;
        run<sum_of_row>(where, {1}, {in.upload(), out.upload()});
        out.download();
        bool right = true;
        for (int i = 0; i < 512; ++i) right = right && out.values[i] == in.values[i] + total;
        CHECK(right);
    }
}
