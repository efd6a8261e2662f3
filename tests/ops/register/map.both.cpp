// Elementwise operations on register tiles and their vectors. Two scopes of a block each have their own tile, so that
// the index of a scope matters.
#include <ops/tools.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Each rounds once, even if the compiler fuses a multiplication and an addition.
struct twice_plus_one {
    template <class T>
    IMBREX_FN T operator()(T x) const {
        return convert<T>(convert<float>(x) * 2.0f + 1.0f);
    }
};
struct plus_place {
    template <class T>
    IMBREX_FN T operator()(int row, int column, T x) const {
        return convert<T>(convert<float>(x) + static_cast<float>(3 * row - column) * 0.125f);
    }
};
struct minus {
    template <class T, class U>
    IMBREX_FN T operator()(T a, U b) const {
        return convert<T>(convert<float>(a) - convert<float>(b));
    }
};

template <class T>
constexpr float range_of = std::is_integral_v<T> ? 50.0f : 4.0f;

template <class T, class U, int Rows, int Columns, class Scope, register_layout Layout>
struct elementwise {
    using tile = register_tile<T, Rows, Columns, Scope, Layout>;
    using other_tile = register_tile<U, Rows, Columns, Scope, Layout>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<const U> other;
        matrix_view<T> mapped, placed, combined, filled;
        T value;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            const int mine = self.index();
            tile one;
            load(self, one, args.in.template tile<tile>(mine, 0));
            map(self, one, twice_plus_one{});
            store(self, args.mapped.template tile<tile>(mine, 0), one);
            map_indexed(self, one, plus_place{});
            store(self, args.placed.template tile<tile>(mine, 0), one);
            other_tile two;
            load(self, two, args.other.template tile<tile>(mine, 0));
            combine(self, one, two, minus{});
            store(self, args.combined.template tile<tile>(mine, 0), one);
            fill(self, one, args.value);
            store(self, args.filled.template tile<tile>(mine, 0), one);
        });
    }
};

template <class T, int Rows, int Columns, class Scope, register_layout Layout = register_layout::row_major, class U = T>
void test_elementwise() {
    using kernel = elementwise<T, U, Rows, Columns, Scope, Layout>;
    constexpr std::size_t count = 2 * Rows * Columns;
    for (const world where : worlds()) {
        buffer<T> in(where, count), mapped(where, count, poison<T>()), placed(where, count, poison<T>()),
            combined(where, count, poison<T>()), filled(where, count, poison<T>());
        buffer<U> other(where, count);
        fill_random(in.values, 1, -range_of<T>, range_of<T>);
        fill_random(other.values, 2, -range_of<U>, range_of<U>);
        const auto view = [](auto* pointer) { return matrix(pointer, 2 * Rows, Columns); };
        const T value = convert<T>(3.0f);
        run<kernel>(
            where, {1, 1, 1},
            {view(static_cast<const T*>(in.upload())), view(static_cast<const U*>(other.upload())),
             view(mapped.upload()), view(placed.upload()), view(combined.upload()), view(filled.upload()), value},
            2);
        mapped.download();
        placed.download();
        combined.download();
        filled.download();
        const std::string name = name_of_shape<T>(where, Rows, Columns, Scope::warps) +
                                 (Layout == register_layout::column_major ? ", column-major" : "");
        tally map_tally(name + ", map"), placed_tally(name + ", map_indexed"), combined_tally(name + ", combine"),
            filled_tally(name + ", fill");
        for (int row = 0; row < 2 * Rows; ++row) {
            for (int column = 0; column < Columns; ++column) {
                const int i = row * Columns + column;
                T wanted = convert<T>(convert<float>(in.values[i]) * 2.0f + 1.0f);
                map_tally.expect_same(row, column, mapped.values[i], wanted);
                wanted = convert<T>(convert<float>(wanted) + static_cast<float>(3 * (row % Rows) - column) / 8);
                placed_tally.expect_same(row, column, placed.values[i], wanted);
                wanted = convert<T>(convert<float>(wanted) - convert<float>(other.values[i]));
                combined_tally.expect_same(row, column, combined.values[i], wanted);
                filled_tally.expect_same(row, column, filled.values[i], value);
            }
        }
    }
}

template <class T, class U, int Rows, int Columns, class Scope>
struct with_vectors {
    using tile = register_tile<T, Rows, Columns, Scope>;
    static constexpr bool with_columns = sizeof(T) > 1;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        const U* rows;
        const U* columns;
        matrix_view<T> by_rows, by_columns;
        U* row_results;     // mapped, combined, filled, for each scope
        U* column_results;  // the same
        U value;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            const int mine = self.index();
            tile one;
            row_values<U, Rows, Scope> rows, more_rows;
            load(self, one, args.in.template tile<tile>(mine, 0));
            load(self, rows, args.rows + mine * Rows, Rows);
            combine_with_rows(self, one, rows, minus{});
            store(self, args.by_rows.template tile<tile>(mine, 0), one);
            U* row_results = args.row_results + 3 * mine * Rows;
            more_rows = rows;
            map(self, more_rows, twice_plus_one{});
            store(self, row_results, Rows, more_rows);
            combine(self, more_rows, rows, minus{});
            store(self, row_results + Rows, Rows, more_rows);
            fill(self, more_rows, args.value);
            store(self, row_results + 2 * Rows, Rows, more_rows);
            if constexpr (with_columns) {
                column_values<U, Columns> columns, more_columns;
                load(self, columns, args.columns, Columns);
                combine_with_columns(self, one, columns, minus{});
                store(self, args.by_columns.template tile<tile>(mine, 0), one);
                U* column_results = args.column_results + 3 * mine * Columns;
                more_columns = columns;
                map(self, more_columns, twice_plus_one{});
                store(self, column_results, Columns, more_columns);
                combine(self, more_columns, columns, minus{});
                store(self, column_results + Columns, Columns, more_columns);
                fill(self, more_columns, args.value);
                store(self, column_results + 2 * Columns, Columns, more_columns);
            }
        });
    }
};

template <class T, int Rows, int Columns, class Scope, class U = T>
void test_with_vectors() {
    using kernel = with_vectors<T, U, Rows, Columns, Scope>;
    constexpr std::size_t count = 2 * Rows * Columns;
    for (const world where : worlds()) {
        buffer<T> in(where, count), by_rows(where, count, poison<T>()), by_columns(where, count, poison<T>());
        buffer<U> rows(where, 2 * Rows), columns(where, Columns), row_results(where, 6 * Rows, poison<U>()),
            column_results(where, 6 * Columns, poison<U>());
        fill_random(in.values, 3, -range_of<T>, range_of<T>);
        fill_random(rows.values, 4, -range_of<U>, range_of<U>);
        fill_random(columns.values, 5, -range_of<U>, range_of<U>);
        const U value = convert<U>(-2.0f);
        run<kernel>(where, {1, 1, 1},
                    {matrix(static_cast<const T*>(in.upload()), 2 * Rows, Columns), rows.upload(), columns.upload(),
                     matrix(by_rows.upload(), 2 * Rows, Columns), matrix(by_columns.upload(), 2 * Rows, Columns),
                     row_results.upload(), column_results.upload(), value},
                    2);
        by_rows.download();
        by_columns.download();
        row_results.download();
        column_results.download();
        const std::string name = name_of_shape<T>(where, Rows, Columns, Scope::warps);
        tally row_tally(name + ", combine_with_rows"), values_tally(name + ", row and column values");
        tally column_tally(name + ", combine_with_columns");
        if constexpr (!kernel::with_columns) column_tally.expect(true);
        for (int row = 0; row < 2 * Rows; ++row) {
            for (int column = 0; column < Columns; ++column) {
                const int i = row * Columns + column;
                T wanted = convert<T>(convert<float>(in.values[i]) - convert<float>(rows.values[row]));
                row_tally.expect_same(row, column, by_rows.values[i], wanted);
                if constexpr (kernel::with_columns) {
                    wanted = convert<T>(convert<float>(wanted) - convert<float>(columns.values[column]));
                    column_tally.expect_same(row, column, by_columns.values[i], wanted);
                }
            }
        }
        const auto compare = [&](const std::vector<U>& results, int length, int scope, auto source) {
            for (int i = 0; i < length; ++i) {
                const U mapped = convert<U>(convert<float>(source(i)) * 2.0f + 1.0f);
                const U* from = results.data() + 3 * scope * length + i;
                values_tally.expect_same(0, i, from[0], mapped);
                values_tally.expect_same(1, i, from[length],
                                         convert<U>(convert<float>(mapped) - convert<float>(source(i))));
                values_tally.expect_same(2, i, from[2 * length], value);
            }
        };
        for (int scope = 0; scope < 2; ++scope) {
            compare(row_results.values, Rows, scope, [&](int i) { return rows.values[scope * Rows + i]; });
            if constexpr (kernel::with_columns) {
                compare(column_results.values, Columns, scope, [&](int i) { return columns.values[i]; });
            }
        }
    }
}

// One tile that takes half of all registers, so a second one does not fit.
template <class T, int Rows, int Columns, class Scope>
struct large {
    using tile = register_tile<T, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> out;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            tile one;
            load(self, one, args.in.template tile<tile>(self.index(), 0));
            map_indexed(self, one, plus_place{});
            store(self, args.out.template tile<tile>(self.index(), 0), one);
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
void test_large() {
    constexpr std::size_t count = 2 * Rows * Columns;
    for (const world where : worlds()) {
        buffer<T> in(where, count), out(where, count, poison<T>());
        fill_random(in.values, 6, -4.0f, 4.0f);
        run<large<T, Rows, Columns, Scope>>(
            where, {1, 1, 1},
            {matrix(static_cast<const T*>(in.upload()), 2 * Rows, Columns), matrix(out.upload(), 2 * Rows, Columns)},
            2);
        out.download();
        tally compared(name_of_shape<T>(where, Rows, Columns, Scope::warps) + ", map_indexed");
        for (int row = 0; row < 2 * Rows; ++row) {
            for (int column = 0; column < Columns; ++column) {
                const int i = row * Columns + column;
                const float moved = convert<float>(in.values[i]) + static_cast<float>(3 * (row % Rows) - column) / 8;
                compared.expect_same(row, column, out.values[i], convert<T>(moved));
            }
        }
    }
}

TEST_CASE("elementwise operations on tiles") {
    test_elementwise<float, 16, 8, warp>();
    test_elementwise<bf16, 32, 40, warp>();
    test_elementwise<std::int32_t, 16, 32, warp>();
    test_elementwise<e4m3, 32, 16, warp>();
    test_elementwise<float, 128, 24, warpgroup>();
    test_elementwise<std::int8_t, 64, 48, warpgroup>();
}

TEST_CASE("elementwise operations on column-major tiles") {
    test_elementwise<float, 8, 16, warp, register_layout::column_major>();
    test_elementwise<bf16, 24, 32, warp, register_layout::column_major>();
    test_elementwise<e4m3, 16, 64, warpgroup, register_layout::column_major>();
}

TEST_CASE("a tile combined with one of another type") {
    test_elementwise<float, 32, 24, warp, register_layout::row_major, fp16>();
    test_elementwise<e4m3, 16, 32, warp, register_layout::row_major, std::int8_t>();
}

TEST_CASE("tiles with row and column values") {
    test_with_vectors<float, 48, 24, warp>();
    test_with_vectors<std::int32_t, 16, 8, warp>();
    test_with_vectors<float, 64, 8, warpgroup>();
    test_with_vectors<fp16, 128, 32, warpgroup>();
    test_with_vectors<bf16, 32, 24, warp, float>();
    test_with_vectors<std::int8_t, 64, 32, warpgroup, float>();
}

// Factors that are all one in one warp and not in another.
template <class Scope>
struct rescaling {
    using tile = register_tile<float, 16 * Scope::warps, 24, Scope>;
    static constexpr int warps = Scope::warps < 4 ? 4 : Scope::warps;
    struct arguments {
        matrix_view<float> values;
        const float* factors;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            if (self.index() > 0) return;
            tile one;
            row_values_of<tile> factors;
            load(self, one, args.values.template tile<tile>(0, 0));
            load(self, factors, args.factors, tile::rows);
            rescale_rows(self, one, factors);
            store(self, args.values.template tile<tile>(0, 0), one);
        });
    }
};

template <class Scope>
void test_rescaling() {
    constexpr int rows = 16 * Scope::warps;
    for (const world where : worlds()) {
        for (const int different : {-1, 0, rows - 1}) {
            buffer<float> values(where, rows * 24, 3.0f), factors(where, rows, 1.0f);
            if (different >= 0) factors.values[different] = 0.5f;
            // One schedule only: every run changes the input of the next.
            run<rescaling<Scope>>(where, {1, 1, 1}, {matrix(values.upload(), rows, 24), factors.upload()}, 1);
            values.download();
            tally compared(str_cat(name_of(where), ", rescaled rows of ", Scope::warps, " warps"));
            for (int row = 0; row < rows; ++row) {
                for (int column = 0; column < 24; ++column) {
                    compared.expect_same(row, column, values.values[row * 24 + column], row == different ? 1.5f : 3.0f);
                }
            }
        }
    }
}

TEST_CASE("rows rescaled by factors most of which are one") {
    test_rescaling<warp>();
    test_rescaling<warpgroup>();
}

TEST_CASE("the largest tiles") {
    test_large<float, 32, 128, warp>();
    test_large<bf16, 64, 64, warp>();
    test_large<float, 64, 256, warpgroup>();
    test_large<float, 128, 128, warpgroup>();
}

}  // namespace
