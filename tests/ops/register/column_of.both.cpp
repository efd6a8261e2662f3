// One column of a register tile, selected at run time, as row values; and row values combined with two tiles. Two
// scopes of a block each have their own tiles.
#include <ops/tools.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// into = into + other * the selected column of `columns`, for each of its eight in turn.
template <int Rows, int Columns, class Scope>
struct scaled_by_columns {
    using tile = register_tile<float, Rows, Columns, Scope>;
    using eight = register_tile<float, Rows, 8, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const float> columns;
        matrix_view<const float> other;
        matrix_view<float> taken, joined;
        int count;
    };
    struct shared_memory {};

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            const int mine = self.index();
            eight columns;
            load(self, columns, args.columns.template tile<eight>(mine, 0));
            tile other, joined;
            load(self, other, args.other.template tile<tile>(mine, 0));
            fill(self, joined, 1.0f);
            for (int column = 0; column < args.count; ++column) {
                const auto of_rows = column_of(self, columns, column);
                tile taken;
                fill(self, taken, 0.0f);
                combine_with_rows(self, taken, of_rows, [](float, float value) { return value; });
                store(self, args.taken.template tile<tile>(mine, column), taken);
                combine_with_rows(self, joined, other, of_rows,
                                  [](float sum, float x, float value) { return sum + x * value; });
            }
            store(self, args.joined.template tile<tile>(mine, 0), joined);
        });
    }
};

template <int Rows, int Columns, class Scope>
void test_columns() {
    using kernel = scaled_by_columns<Rows, Columns, Scope>;
    constexpr int rows = 2 * Rows;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> columns(where, rows * 8), other(where, rows * Columns);
        buffer<float> taken(where, rows * Columns * 8, NAN), joined(where, rows * Columns, NAN);
        // Small integers: exact for any rounding.
        for (std::size_t i = 0; i < columns.values.size(); ++i) columns.values[i] = static_cast<float>(i % 23) - 11;
        for (std::size_t i = 0; i < other.values.size(); ++i) other.values[i] = static_cast<float>(i % 17) - 8;
        run<kernel>(where, {1},
                    {matrix<const float>(columns.upload(), rows, 8), matrix<const float>(other.upload(), rows, Columns),
                     matrix(taken.upload(), rows, 8 * Columns), matrix(joined.upload(), rows, Columns), 8});
        taken.download();
        joined.download();
        int wrong = 0;
        for (int row = 0; row < rows; ++row) {
            for (int at = 0; at < Columns; ++at) {
                float sum = 1;
                for (int column = 0; column < 8; ++column) {
                    const float value = columns.values[row * 8 + column];
                    wrong += taken.values[(row * 8 + column) * Columns + at] != value;
                    sum += other.values[row * Columns + at] * value;
                }
                wrong += joined.values[row * Columns + at] != sum;
            }
        }
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("a column of a register tile, and row values combined with two tiles") {
    test_columns<16, 8, warp>();
    test_columns<32, 24, warp>();
    test_columns<64, 16, warpgroup>();
    test_columns<128, 8, warpgroup>();
}
