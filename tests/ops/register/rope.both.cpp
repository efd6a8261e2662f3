// Tests of RoPE on register tiles, with cos and sin from a part of a shared vector: pairs in two tiles, and adjacent in
// one. Also row values that are computed from their row index.
#include <ops/tools.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int length = 96;  // of the shared vector

IMBREX_FN cos_sin rotation_of(int index) {
    return {static_cast<float>(index % 7 - 3), static_cast<float>(index % 5 - 2)};
}

template <int Rows, int Columns, class Scope>
struct turn_pairs {
    using tile = register_tile<float, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const float> left, right;
        matrix_view<float> turned_left, turned_right, neighbours;
        int first;  // offset in the shared vector
    };
    struct shared_memory {
        shared_vector<cos_sin, length> rotations;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        fill_indexed(block, shared.rotations, [](int index) { return rotation_of(index); });
        block.sync();
        each<Scope>(block, [&](auto& self) {
            const int mine = self.index();
            tile left, right;
            load(self, left, args.left.template tile<tile>(mine, 0));
            load(self, right, args.right.template tile<tile>(mine, 0));
            tile neighbours = left;
            column_values<cos_sin, Columns> by;
            load(self, by, shared.rotations.template subtile<Columns>(args.first));
            apply_rope_half_split(self, left, right, by);
            apply_rope_interleaved(self, neighbours, by);
            row_values<float, Rows, Scope> numbers;
            fill(self, numbers, 100.0f);
            map_indexed(self, numbers, [](int row, float hundred) { return hundred + static_cast<float>(row); });
            combine_with_rows(self, right, numbers, functional::add{});
            store(self, args.turned_left.template tile<tile>(mine, 0), left);
            store(self, args.turned_right.template tile<tile>(mine, 0), right);
            store(self, args.neighbours.template tile<tile>(mine, 0), neighbours);
        });
    }
};

template <int Rows, int Columns, class Scope>
void check_turns() {
    using kernel = turn_pairs<Rows, Columns, Scope>;
    constexpr int rows = 2 * Rows;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> left(where, rows * Columns), right(where, rows * Columns);
        buffer<float> turned_left(where, rows * Columns, NAN), turned_right(where, rows * Columns, NAN),
            neighbours(where, rows * Columns, NAN);
        // Small integers: exact whatever the rounding.
        for (std::size_t i = 0; i < left.values.size(); ++i) left.values[i] = static_cast<float>(i % 23) - 11;
        for (std::size_t i = 0; i < right.values.size(); ++i) right.values[i] = static_cast<float>(i % 17) - 8;
        for (const int first : {0, 16, length - Columns}) {
            run<kernel>(
                where, {1},
                {matrix<const float>(left.upload(), rows, Columns), matrix<const float>(right.upload(), rows, Columns),
                 matrix(turned_left.upload(), rows, Columns), matrix(turned_right.upload(), rows, Columns),
                 matrix(neighbours.upload(), rows, Columns), first});
            turned_left.download();
            turned_right.download();
            neighbours.download();
            int wrong = 0;
            for (int i = 0; i < rows * Columns; ++i) {
                const int column = i % Columns;
                const cos_sin r = rotation_of(first + column), even = rotation_of(first + column / 2 * 2);
                const float x = left.values[i], y = right.values[i];
                const float beside = left.values[column % 2 == 0 ? i + 1 : i - 1];
                wrong += turned_left.values[i] != x * r.cosine - y * r.sine;
                wrong +=
                    turned_right.values[i] != y * r.cosine + x * r.sine + 100 + static_cast<float>(i / Columns % Rows);
                wrong += neighbours.values[i] != x * even.cosine + (column % 2 == 0 ? -beside : beside) * even.sine;
            }
            CHECK(wrong == 0);
        }
    }
}

}  // namespace

TEST_CASE("rotates pairs by cos and sin of their column") {
    check_turns<16, 8, warp>();
    check_turns<16, 64, warp>();
    check_turns<32, 24, warp>();
    check_turns<64, 16, warpgroup>();
}
