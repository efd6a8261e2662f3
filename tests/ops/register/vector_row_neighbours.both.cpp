// Tests of operations on neighbours of vectorised rows: the Walsh-Hadamard transform against its matrix in double, pairs
// of columns, reductions of whole tiles, chunks of eight columns at any place, and 8-bit elements.
#include <imbrex/core/functional.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_neighbours.hpp>

#include "worlds.hpp"

#include <bit>
#include <cmath>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Two tiles of each warp's rows, columns [0, Columns) and [Columns, 2 Columns) of a matrix.
template <class T>
struct half_rows {
    matrix_view<T> all;
    int first, half;

    IMBREX_FN T* operator()(int row) const { return all.at(first + row, half).pointer; }
};

template <int Rows, int Columns>
struct transform_rows {
    using tile = vector_row_tile<float, Rows, Columns>;
    static constexpr int warps = 2;  // with different rows
    struct arguments {
        matrix_view<const float> from;
        matrix_view<float> to;
        float* largest;  // of each warp
        int run;         // twice the columns: both tiles together
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](const warp& self) {
            const int first = self.index() * Rows;
            tile x, y;
            load_rows_from<row_alignment::aligned>(self, x, half_rows<const float>{args.from, first, 0}, Columns);
            load_rows_from<row_alignment::aligned>(self, y, half_rows<const float>{args.from, first, Columns}, Columns);
            const float largest = reduce(self, 0.0f, functional::absolute_maximum{}, functional::maximum{}, x, y);
            hadamard(self, x, args.run > Columns ? Columns : args.run);
            hadamard(self, y, args.run > Columns ? Columns : args.run);
            if (args.run > Columns) hadamard_halves(self, x, y);
            store_rows_to<row_alignment::aligned>(self, half_rows<float>{args.to, first, 0}, x, Columns);
            store_rows_to<row_alignment::aligned>(self, half_rows<float>{args.to, first, Columns}, y, Columns);
            imbrex::put(self, args.largest + self.index(), largest);
        });
    }
};

template <int Rows, int Columns>
void check_transform(int run_columns) {
    using kernel = transform_rows<Rows, Columns>;
    constexpr int rows = 2 * Rows, columns = 2 * Columns;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Columns);
        CAPTURE(run_columns);
        buffer<float> from(where, rows * columns), to(where, rows * columns), largest(where, 2);
        fill_random(from.values, 7, -3, 3);
        from.values[5] = NAN;  // has no effect on the maximum, and stays in its run
        run<kernel>(where, {1},
                    {matrix<const float>(from.upload(), rows, columns), matrix(to.upload(), rows, columns),
                     largest.upload(), run_columns});
        to.download();
        largest.download();
        double wanted_largest[2] = {};
        int wrong = 0;
        for (int row = 0; row < rows; ++row) {
            for (int i = 0; i < columns; ++i) {
                double sum = 0, magnitude = 0;
                const int first = i / run_columns * run_columns;
                for (int j = 0; j < run_columns; ++j) {
                    const double x = from.values[row * columns + first + j];
                    const bool negative = std::popcount(static_cast<unsigned>((i - first) & j)) % 2 != 0;
                    sum += negative ? -x : x;
                    magnitude += std::fabs(x);
                }
                const float found = to.values[row * columns + i];
                wrong += std::isnan(sum) ? !std::isnan(found) : !(std::fabs(found - sum) <= 1e-6 * magnitude);
                const double here = std::fabs(from.values[row * columns + i]);
                if (here > wanted_largest[row / Rows]) wanted_largest[row / Rows] = here;
            }
        }
        CHECK(wrong == 0);
        CHECK(largest.values[0] == static_cast<float>(wanted_largest[0]));
        CHECK(largest.values[1] == static_cast<float>(wanted_largest[1]));
    }
}

// Reverses the order of the chunks of a row, exchanges the elements of each pair, and rounds to another type; the last
// two rows and the chunk in the middle are missing.
template <class From, class To, int Rows, int Columns>
struct reverse_chunks {
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const From> from;
        matrix_view<To> to;
    };
    template <class T>
    struct chunks {
        matrix_view<T> all;
        bool reversed;

        IMBREX_FN T* operator()(int row, int column) const {
            if (row >= Rows - 2 || column == Columns / 2) return nullptr;
            return all.at(row, reversed ? Columns - 8 - column : column).pointer;
        }
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](const warp& self) {
            vector_row_tile<From, Rows, Columns> from;
            load_chunks_from(self, from, chunks<const From>{args.from, true});
            vector_row_tile<float, Rows, Columns> numbers, x, y;
            transform(
                self, numbers, [](float a) { return 2 * a; }, from);
            fill_neighbours(
                self,
                [](int row, int column, float_pair& one, float_pair& other) {
                    one = {static_cast<float>(row), static_cast<float>(column)};
                    other = {0.0f, 1.0f};
                },
                x, y);
            vector_row_tile<float, Rows, Columns> copy = numbers;
            update_neighbours(
                self,
                [](int, int, float_pair& a, float_pair& b, const float_pair& place, const float_pair& one) {
                    a = {b.high + place.low * one.low, b.low + (place.high - place.high) * one.high};
                },
                numbers, copy, x, y);
            vector_row_tile<To, Rows, Columns> rounded;
            transform(
                self, rounded, [](float a) { return a; }, numbers);
            store_chunks_to(self, chunks<To>{args.to, false}, rounded);
        });
    }
};

template <class From, class To, int Rows, int Columns>
void check_chunks() {
    using kernel = reverse_chunks<From, To, Rows, Columns>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<From> from(where, Rows * Columns);
        buffer<To> to(where, Rows * Columns, convert<To>(-1.0f));
        fill_random(from.values, 3, -300, 300);
        run<kernel>(where, {1}, {matrix<const From>(from.upload(), Rows, Columns), matrix(to.upload(), Rows, Columns)});
        to.download();
        int wrong = 0;
        for (int row = 0; row < Rows; ++row) {
            for (int column = 0; column < Columns; ++column) {
                const bool there = row < Rows - 2 && column / 8 != Columns / 16;
                const int source = Columns - 8 - column / 8 * 8 + (column % 8 ^ 1);
                const float value = there ? 2 * convert<float>(from.values[row * Columns + source]) : -1.0f;
                wrong += convert<float>(to.values[row * Columns + column]) != convert<float>(convert<To>(value));
            }
        }
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("Hadamard transform of vectorised rows: every run and width") {
    for (const int columns : {8, 16, 32, 64}) check_transform<16, 32>(columns);
    for (const int columns : {16, 64, 128}) check_transform<8, 64>(columns);
    for (const int columns : {8, 32, 128, 256}) check_transform<4, 128>(columns);
    check_transform<2, 256>(512);
    check_transform<32, 8>(8);
}

TEST_CASE("chunks of vectorised rows from and to any place; pairs of neighbours; 8-bit elements") {
    check_chunks<bf16, e4m3, 16, 32>();
    check_chunks<fp16, e4m3, 8, 64>();
    check_chunks<e4m3, float, 8, 128>();
    check_chunks<e4m3, e4m3, 4, 256>();
    check_chunks<float, bf16, 4, 64>();
}
