// Reductions of register tiles along rows and columns. The elements are small multiples of a half, products only of
// powers of two: the results are exact in any order, so every bit can be compared.
#include <ops/tools.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T>
void fill_with_factors(std::vector<T>& values, std::uint32_t seed) {
    std::mt19937 generator(seed);
    const float factors[] = {1.0f, -1.0f, 2.0f, std::is_integral_v<T> ? -2.0f : 0.5f};
    for (T& value : values) value = convert<T>(factors[generator() % 4]);
}

// A user-defined function, for types without arithmetic.
struct larger {
    template <class T>
    IMBREX_FN T operator()(T a, T b) const {
        return convert<float>(a) < convert<float>(b) ? b : a;
    }
};

template <class T>
constexpr T least = std::is_integral_v<T> ? T(-1000000) : T(minus_infinity);

template <class T, int Rows, int Columns, class Scope>
struct reductions {
    using tile = register_tile<T, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        T* rows;     // maximum, sum, product, for each scope
        T* columns;  // the same
    };
    struct shared_memory {
        shared_vector<T, 4 * Columns> scratch[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        each<Scope>(block, [&](auto& self) {
            const int mine = self.index();
            tile one;
            load(self, one, args.in.template tile<tile>(mine, 0));

            row_values<T, Rows, Scope> by_row;
            T* rows = args.rows + 3 * Rows * mine;
            reduce_rows(self, by_row, one, functional::maximum{}, least<T>);
            store(self, rows, Rows, by_row);
            reduce_rows(self, by_row, one, functional::add{}, T(0));
            store(self, rows + Rows, Rows, by_row);
            reduce_rows(self, by_row, one, functional::multiply{}, T(1));
            store(self, rows + 2 * Rows, Rows, by_row);

            column_values<T, Columns> by_column;
            T* columns = args.columns + 3 * Columns * mine;
            const auto by_columns = [&](auto op, T identity) {
                if constexpr (Scope::warps == 1) {
                    reduce_columns(self, by_column, one, op, identity);
                } else {
                    reduce_columns(self, by_column, one, op, identity, smem.scratch[mine]);
                }
            };
            by_columns(functional::maximum{}, least<T>);
            store(self, columns, Columns, by_column);
            by_columns(functional::add{}, T(0));
            store(self, columns + Columns, Columns, by_column);
            by_columns(functional::multiply{}, T(1));
            store(self, columns + 2 * Columns, Columns, by_column);
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
void test_reductions() {
    for (const world where : worlds()) {
        buffer<T> in(where, 2 * Rows * Columns), rows(where, 6 * Rows, poison<T>()),
            columns(where, 6 * Columns, poison<T>());
        fill_with_factors(in.values, 9);
        run<reductions<T, Rows, Columns, Scope>>(
            where, {1, 1, 1},
            {matrix(static_cast<const T*>(in.upload()), 2 * Rows, Columns), rows.upload(), columns.upload()}, 2);
        rows.download();
        columns.download();
        const std::string name = name_of_shape<T>(where, Rows, Columns, Scope::warps);
        tally row_tally(name + ", rows"), column_tally(name + ", columns");
        const auto compare = [&](tally& into, const T* results, int length, int depth, auto element) {
            for (int i = 0; i < length; ++i) {
                T most = element(i, 0), sum = 0, product = 1;
                for (int k = 0; k < depth; ++k) {
                    most = std::max(most, element(i, k));
                    sum += element(i, k);
                    product *= element(i, k);
                }
                into.expect_same(0, i, results[i], most);
                into.expect_same(1, i, results[length + i], sum);
                into.expect_same(2, i, results[2 * length + i], product);
            }
        };
        for (int scope = 0; scope < 2; ++scope) {
            const T* tile = in.values.data() + scope * Rows * Columns;
            compare(row_tally, rows.values.data() + 3 * Rows * scope, Rows, Columns,
                    [&](int row, int column) { return tile[row * Columns + column]; });
            compare(column_tally, columns.values.data() + 3 * Columns * scope, Columns, Rows,
                    [&](int column, int row) { return tile[row * Columns + column]; });
        }
    }
}

// The two halves of a reduction: several tiles folded, then the lanes combined once.
template <int Rows, int Columns, class Scope>
struct folding {
    using tile = register_tile<float, Rows, Columns, Scope>;
    static constexpr int warps = Scope::warps;
    struct arguments {
        matrix_view<const float> in;
        float* sums;
        float* largest;
        int tiles;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            row_values_of<tile> sums, largest;
            fill(self, sums, 0.0f);
            fill(self, largest, minus_infinity);
            for (int i = 0; i < args.tiles; ++i) {
                tile one;
                load(self, one, args.in.template tile<tile>(0, i));
                fold_rows(self, sums, one, functional::add{});
                fold_rows(self, largest, one, functional::maximum{});
            }
            finish_rows(self, sums, functional::add{});
            finish_rows(self, largest, functional::maximum{});
            store(self, args.sums, Rows, sums);
            store(self, args.largest, Rows, largest);
        });
    }
};

template <int Rows, int Columns, class Scope>
void test_folding(int tiles) {
    for (const world where : worlds()) {
        buffer<float> in(where, static_cast<std::size_t>(Rows) * Columns * tiles), sums(where, Rows, poison<float>()),
            largest(where, Rows, poison<float>());
        fill_with_factors(in.values, 10);
        run<folding<Rows, Columns, Scope>>(where, {1, 1, 1},
                                           {matrix(static_cast<const float*>(in.upload()), Rows, Columns * tiles),
                                            sums.upload(), largest.upload(), tiles},
                                           2);
        sums.download();
        largest.download();
        tally compared(name_of_shape<float>(where, Rows, Columns, Scope::warps) + ", folded");
        for (int row = 0; row < Rows; ++row) {
            float sum = 0, most = minus_infinity;
            for (int column = 0; column < Columns * tiles; ++column) {
                sum += in.values[row * Columns * tiles + column];
                most = std::max(most, in.values[row * Columns * tiles + column]);
            }
            compared.expect_same(row, 0, sums.values[row], sum);
            compared.expect_same(row, 1, largest.values[row], most);
        }
    }
}

// Elements without arithmetic, exchanged between lanes as bits.
template <class T, int Rows, int Columns, class Scope>
struct narrow_reductions {
    using tile = register_tile<T, Rows, Columns, Scope>;
    static constexpr int warps = Scope::warps;
    static constexpr bool with_columns = sizeof(T) > 1 && warps == 1;
    struct arguments {
        matrix_view<const T> in;
        T* rows;
        T* columns;
        T identity;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            tile one;
            load(self, one, args.in.template tile<tile>(0, 0));
            row_values_of<tile> by_row;
            reduce_rows(self, by_row, one, larger{}, args.identity);
            store(self, args.rows, Rows, by_row);
            if constexpr (with_columns) {
                column_values_of<tile> by_column;
                reduce_columns(self, by_column, one, larger{}, args.identity);
                store(self, args.columns, Columns, by_column);
            }
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
void test_narrow_reductions() {
    using kernel = narrow_reductions<T, Rows, Columns, Scope>;
    for (const world where : worlds()) {
        buffer<T> in(where, Rows * Columns), rows(where, Rows, poison<T>()), columns(where, Columns, poison<T>());
        fill_random(in.values, 11, -100.0f, 100.0f);
        run<kernel>(where, {1, 1, 1},
                    {matrix(static_cast<const T*>(in.upload()), Rows, Columns), rows.upload(), columns.upload(),
                     convert<T>(-120.0f)},
                    2);
        rows.download();
        columns.download();
        tally compared(name_of_shape<T>(where, Rows, Columns, Scope::warps) + ", user-defined function");
        for (int row = 0; row < Rows; ++row) {
            float most = -120.0f;
            for (int column = 0; column < Columns; ++column) {
                most = std::max(most, convert<float>(in.values[row * Columns + column]));
            }
            compared.expect_same(row, 0, rows.values[row], convert<T>(most));
        }
        for (int column = 0; column < Columns && kernel::with_columns; ++column) {
            float most = -120.0f;
            for (int row = 0; row < Rows; ++row) {
                most = std::max(most, convert<float>(in.values[row * Columns + column]));
            }
            compared.expect_same(0, column, columns.values[column], convert<T>(most));
        }
    }
}

TEST_CASE("rows and columns of a warp's tiles") {
    test_reductions<float, 16, 8, warp>();
    test_reductions<float, 48, 40, warp>();
    test_reductions<std::int32_t, 16, 24, warp>();
}

TEST_CASE("rows and columns of a warpgroup's tiles") {
    test_reductions<float, 64, 8, warpgroup>();
    test_reductions<float, 128, 64, warpgroup>();
    test_reductions<float, 64, 200, warpgroup>();
}

TEST_CASE("many tiles folded, combined once") {
    test_folding<16, 16, warp>(5);
    test_folding<64, 32, warpgroup>(3);
}

TEST_CASE("types without arithmetic") {
    test_narrow_reductions<bf16, 32, 24, warp>();
    test_narrow_reductions<fp16, 64, 40, warpgroup>();
    test_narrow_reductions<e4m3, 32, 48, warp>();
    test_narrow_reductions<std::int8_t, 64, 16, warpgroup>();
}

}  // namespace
