// Masks on register tiles: every predicate of the library, alone and combined, with tiles at any position of the
// matrix.
#include <ops/tools.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct checkerboard {
    int period;
    constexpr IMBREX_FN bool operator()(int row, int column) const { return (row / period + column / period) % 2 == 0; }
};

template <class T, int Rows, int Columns, class Scope, class Keep, register_layout Layout>
struct masking {
    using tile = register_tile<T, Rows, Columns, Scope, Layout>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> out;
        Keep keep;
        int first_row, first_column;
        T masked;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            tile one;
            load(self, one, args.in.template tile<tile>(self.index(), 0));
            mask(self, one, args.keep, args.first_row + self.index() * Rows, args.first_column, args.masked);
            store(self, args.out.template tile<tile>(self.index(), 0), one);
        });
    }
};

// `wanted` restates which elements stay; `places` are the positions of the tile's first element.
template <class T, int Rows, int Columns, class Scope, register_layout Layout = register_layout::row_major, class Keep,
          class Wanted>
void test_mask(const std::string& of, Keep keep, Wanted wanted, std::vector<std::pair<int, int>> places) {
    using kernel = masking<T, Rows, Columns, Scope, Keep, Layout>;
    constexpr std::size_t count = 2 * Rows * Columns;
    for (const world where : worlds()) {
        tally compared(str_cat(name_of_shape<T>(where, Rows, Columns, Scope::warps), ", ", of));
        long kept = 0, replaced = 0;
        for (const auto& [first_row, first_column] : places) {
            buffer<T> in(where, count), out(where, count, poison<T>());
            fill_random(in.values, 8, 1.0f, 100.0f);
            const T masked = convert<T>(-1000.0f);
            run<kernel>(where, {1, 1, 1},
                        {matrix(static_cast<const T*>(in.upload()), 2 * Rows, Columns),
                         matrix(out.upload(), 2 * Rows, Columns), keep, first_row, first_column, masked},
                        2);
            out.download();
            for (int row = 0; row < 2 * Rows; ++row) {
                for (int column = 0; column < Columns; ++column) {
                    const int i = row * Columns + column;
                    const bool stays = wanted(first_row + row, first_column + column);
                    ++(stays ? kept : replaced);
                    compared.expect_same(row, column, out.values[i], stays ? in.values[i] : masked);
                }
            }
        }
        INFO(of);
        CHECK(kept > 0);
        CHECK(replaced > 0);
    }
}

TEST_CASE("causal masks keep columns up to the diagonal") {
    test_mask<float, 32, 24, warp>("causal", element_mask::causal{}, [](int row, int column) { return column <= row; },
                                   {{0, 0}, {100, 110}, {0, 64}});
    test_mask<bf16, 64, 64, warpgroup>("causal, more keys than queries", element_mask::causal{.offset = 37},
                                       [](int row, int column) { return column - 37 <= row; }, {{0, 0}, {64, 128}});
    test_mask<float, 64, 8, warpgroup>("causal, fewer keys than queries", element_mask::causal{.offset = -5},
                                       [](int row, int column) { return row >= column + 5; }, {{0, 0}, {128, 192}});
}

TEST_CASE("lower and upper triangles") {
    test_mask<float, 16, 8, warp>("lower triangle", element_mask::lower_triangle{.diagonal = -1},
                                  [](int row, int column) { return row > column; }, {{0, 0}, {8, 16}});
    test_mask<fp16, 16, 32, warp, register_layout::column_major>(
        "upper triangle", element_mask::upper_triangle{.diagonal = 2},
        [](int row, int column) { return column >= row + 2; }, {{0, 0}, {8, 16}});
}

TEST_CASE("windows and bounds") {
    test_mask<float, 16, 40, warp>("window", element_mask::window{.left = 3, .right = 5},
                                   [](int row, int column) { return row - column <= 3 && column - row <= 5; },
                                   {{0, 0}, {40, 16}, {16, 20}});
    test_mask<std::int32_t, 16, 40, warp>(
        "window beside the diagonal", element_mask::window{.left = 0, .right = 1, .offset = 7},
        [](int row, int column) { return column == row + 7 || column == row + 8; }, {{0, 0}, {12, 16}});
    test_mask<e4m3, 64, 32, warpgroup>("bound", element_mask::bound{.rows = 70, .columns = 29},
                                       [](int row, int column) { return !(row >= 70 || column >= 29); },
                                       {{0, 0}, {32, 16}, {71, 0}});
}

TEST_CASE("combined and custom masks") {
    test_mask<float, 128, 32, warpgroup>(
        "causal within a bound",
        element_mask::both<element_mask::causal, element_mask::bound>{{.offset = 3}, {.rows = 190, .columns = 50}},
        [](int row, int column) { return column <= row + 3 && row < 190 && column < 50; }, {{0, 0}, {0, 32}});
    test_mask<std::int8_t, 32, 16, warp>("checkerboard", checkerboard{3},
                                         [](int row, int column) { return (row / 3) % 2 == (column / 3) % 2; },
                                         {{0, 0}, {5, 7}});
}

// Row r keeps the columns from a * r + b up to c * r + d.
struct between {
    int a, b, c, d;
    struct range {
        int first, end;
    };
    IMBREX_FN range operator()(int row) const { return {a * row + b, c * row + d}; }
};

template <class T, int Rows, int Columns, class Scope>
struct masking_outside {
    using tile = register_tile<T, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> out;
        between range;
        T masked;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            tile one;
            load(self, one, args.in.template tile<tile>(self.index(), 0));
            mask_outside(self, one, args.range, args.masked);
            store(self, args.out.template tile<tile>(self.index(), 0), one);
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
void test_outside() {
    using kernel = masking_outside<T, Rows, Columns, Scope>;
    constexpr std::size_t count = 2 * Rows * Columns;
    constexpr int far = 1 << 30;
    for (const world where : worlds()) {
        for (const between& range :
             {between{0, 0, 1, 1}, between{1, -5, 1, 6}, between{1, 3, 0, Columns}, between{0, -far, 0, far},
              between{2, -Columns, 1, Columns / 2}, between{0, 7, 0, 3}, between{0, far, 0, far}}) {
            tally compared(str_cat(name_of_shape<T>(where, Rows, Columns, Scope::warps), ", from ", range.a, " r + ",
                                   range.b, " to ", range.c, " r + ", range.d));
            buffer<T> in(where, count), out(where, count, poison<T>());
            fill_random(in.values, 8, 1.0f, 100.0f);
            const T masked = convert<T>(-1000.0f);
            run<kernel>(where, {1, 1, 1},
                        {matrix(static_cast<const T*>(in.upload()), 2 * Rows, Columns),
                         matrix(out.upload(), 2 * Rows, Columns), range, masked},
                        2);
            out.download();
            for (int row = 0; row < 2 * Rows; ++row) {
                const between::range stays = range(row % Rows);
                for (int column = 0; column < Columns; ++column) {
                    const int i = row * Columns + column;
                    const bool kept = column >= stays.first && column < stays.end;
                    compared.expect_same(row, column, out.values[i], kept ? in.values[i] : masked);
                }
            }
        }
    }
}

TEST_CASE("mask_outside keeps a contiguous range of columns per row") {
    test_outside<float, 16, 8, warp>();
    test_outside<float, 64, 128, warpgroup>();
    test_outside<float, 64, 176, warpgroup>();
    test_outside<bf16, 32, 40, warp>();
    test_outside<e4m3, 64, 160, warpgroup>();
}

}  // namespace
