// Tests of RoPE on vectorised row tiles: pairs in two tiles, and adjacent in one, at every width.
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_rope.hpp>

#include "worlds.hpp"

#include <cmath>

using namespace imbrex;
using namespace imbrex_test;

namespace {

IMBREX_FN cos_sin rotation_of(int column) {
    return {static_cast<float>(column % 7 - 3), static_cast<float>(column % 5 - 2)};
}

template <class T, int Rows, int Columns>
struct turn_pairs {
    using tile = vector_row_tile<T, Rows, Columns>;
    static constexpr int warps = 2;  // with different rows
    struct arguments {
        matrix_view<const T> left, right;
        matrix_view<T> turned_left, turned_right, neighbours;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](const warp& self) {
            const auto row_of = [&](const auto& view) {
                return [&self, &view](int row) { return view.at(self.index() * Rows + row, 0).pointer; };
            };
            tile left, right;
            load_rows_from<row_alignment::aligned>(self, left, row_of(args.left), Columns);
            load_rows_from<row_alignment::aligned>(self, right, row_of(args.right), Columns);
            tile neighbours = left;
            vector_row_cos_sin<Columns> by;
            compute_cos_sin(self, by, [](int column) { return rotation_of(column); });
            apply_rope_half_split(self, left, right, by);
            compute_cos_sin_interleaved(self, by, [](int column) { return rotation_of(column); });
            apply_rope_interleaved(self, neighbours, by);
            store_rows_to<row_alignment::aligned>(self, row_of(args.turned_left), left, Columns);
            store_rows_to<row_alignment::aligned>(self, row_of(args.turned_right), right, Columns);
            store_rows_to<row_alignment::aligned>(self, row_of(args.neighbours), neighbours, Columns);
        });
    }
};

template <class T, int Rows, int Columns>
void check_turns() {
    using kernel = turn_pairs<T, Rows, Columns>;
    constexpr int rows = 2 * Rows;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Columns);
        buffer<T> left(where, rows * Columns), right(where, rows * Columns);
        buffer<T> turned_left(where, rows * Columns), turned_right(where, rows * Columns),
            neighbours(where, rows * Columns);
        // Small integers: exact in every type.
        for (std::size_t i = 0; i < left.values.size(); ++i) {
            left.values[i] = convert<T>(static_cast<float>(i % 23) - 11);
            right.values[i] = convert<T>(static_cast<float>(i % 17) - 8);
        }
        run<kernel>(where, {1},
                    {matrix<const T>(left.upload(), rows, Columns), matrix<const T>(right.upload(), rows, Columns),
                     matrix(turned_left.upload(), rows, Columns), matrix(turned_right.upload(), rows, Columns),
                     matrix(neighbours.upload(), rows, Columns)});
        turned_left.download();
        turned_right.download();
        neighbours.download();
        int wrong = 0;
        for (int i = 0; i < rows * Columns; ++i) {
            const int column = i % Columns;
            const cos_sin r = rotation_of(column), even = rotation_of(column / 2 * 2);
            const float x = convert<float>(left.values[i]), y = convert<float>(right.values[i]);
            const float beside = convert<float>(left.values[column % 2 == 0 ? i + 1 : i - 1]);
            wrong += convert<float>(turned_left.values[i]) != x * r.cosine - y * r.sine;
            wrong += convert<float>(turned_right.values[i]) != y * r.cosine + x * r.sine;
            wrong += convert<float>(neighbours.values[i]) !=
                     x * even.cosine + (column % 2 == 0 ? -beside : beside) * even.sine;
        }
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("rotates pairs of vectorised rows by cos and sin of their column") {
    check_turns<bf16, 32, 8>();
    check_turns<float, 16, 16>();
    check_turns<bf16, 8, 32>();
    check_turns<fp16, 16, 32>();
    check_turns<float, 4, 64>();
    check_turns<bf16, 8, 64>();
    check_turns<fp16, 6, 128>();
    check_turns<bf16, 3, 256>();
    check_turns<float, 1, 512>();
}
