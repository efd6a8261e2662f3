// Elementwise operations on shared tiles at every scope, and single elements of shared vectors.
#include <ops/tools.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

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

// A block is one scope; warps and warpgroups are tested two at a time.
template <class Scope>
constexpr int scopes = std::is_same_v<Scope, warp> || std::is_same_v<Scope, warpgroup> ? 2 : 1;

template <class T, class U, int Rows, int Columns, class Scope>
struct on_shared {
    using tile = shared_tile<T, Rows, Columns>;
    static constexpr int warps = scopes<Scope> * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<const U> other;
        matrix_view<T> filled, out;
        T value;
    };
    struct shared_memory {
        tile first[2];
        shared_tile<U, Rows, Columns> second[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        each<Scope>(block, [&](auto& self) {
            const int mine = index_of(self);
            tile& one = smem.first[mine];
            fill(self, one, args.value);
            self.sync();
            store(self, args.filled.template tile<tile>(mine, 0), one);
            self.sync();
            load(self, one, args.in.template tile<tile>(mine, 0));
            load(self, smem.second[mine], args.other.template tile<tile>(mine, 0));
            self.sync();
            // Each thread has the same elements every time: no sync is needed between these.
            map(self, one, twice_plus_one{});
            map_indexed(self, one, plus_place{});
            combine(self, one, smem.second[mine], minus{});
            self.sync();
            store(self, args.out.template tile<tile>(mine, 0), one);
        });
    }
};

template <class T, int Rows, int Columns, class Scope, class U = T>
void test_on_shared() {
    constexpr int rows = scopes<Scope> * Rows;
    constexpr std::size_t count = rows * Columns;
    for (const world where : worlds()) {
        buffer<T> in(where, count), filled(where, count, poison<T>()), out(where, count, poison<T>());
        buffer<U> other(where, count);
        fill_random(in.values, 20, -4.0f, 4.0f);
        fill_random(other.values, 21, -4.0f, 4.0f);
        const T value = convert<T>(9.0f);
        run<on_shared<T, U, Rows, Columns, Scope>>(
            where, {1, 1, 1},
            {matrix(static_cast<const T*>(in.upload()), rows, Columns),
             matrix(static_cast<const U*>(other.upload()), rows, Columns), matrix(filled.upload(), rows, Columns),
             matrix(out.upload(), rows, Columns), value},
            4);
        filled.download();
        out.download();
        const std::string name = name_of_shape<T>(where, Rows, Columns, Scope::warps);
        tally filled_tally(name + ", fill"), mapped_tally(name + ", map, map_indexed and combine");
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < Columns; ++column) {
                const int i = row * Columns + column;
                filled_tally.expect_same(row, column, filled.values[i], value);
                T wanted = convert<T>(convert<float>(in.values[i]) * 2.0f + 1.0f);
                wanted = convert<T>(convert<float>(wanted) + static_cast<float>(3 * (row % Rows) - column) / 8);
                wanted = convert<T>(convert<float>(wanted) - convert<float>(other.values[i]));
                mapped_tally.expect_same(row, column, out.values[i], wanted);
            }
        }
    }
}

TEST_CASE("elementwise operations on shared tiles") {
    test_on_shared<float, 8, 4, warp>();
    test_on_shared<bf16, 24, 40, warp>();
    test_on_shared<e4m3, 16, 48, warpgroup>();
    test_on_shared<fp16, 64, 64, warpgroup>();
    test_on_shared<float, 32, 36, whole_block<5>>();
    test_on_shared<std::int32_t, 8, 64, whole_block<3>>();
    test_on_shared<float, 16, 32, whole_block<2>, bf16>();
}

// One thread puts, every thread gets: each warp fills a register tile with the result.
template <class T, int Length, class Scope>
struct put_and_get {
    using tile = warp_tile<T, 16, 16>;
    static constexpr int warps = scopes<Scope> * Scope::warps;
    struct arguments {
        matrix_view<T> out;  // a row of tiles for each warp, a column for each element
        T values[Length];
    };
    struct shared_memory {
        shared_vector<T, Length> vector[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        each<Scope>(block, [&](auto& self) {
            const int mine = index_of(self);
            for (int i = 0; i < Length; ++i) put(self, smem.vector[mine], i, args.values[(i + mine) % Length]);
        });
        block.sync();
        block.each_warp([&](warp& self) {
            for (int i = 0; i < Length; ++i) {
                tile seen;
                fill(self, seen, get(self, smem.vector[self.index() / Scope::warps], i));
                store(self, args.out.template tile<tile>(self.index(), i), seen);
            }
        });
    }
};

template <class T, int Length, class Scope>
void test_put_and_get() {
    using kernel = put_and_get<T, Length, Scope>;
    constexpr int rows = 16 * kernel::warps, columns = 16 * Length;
    for (const world where : worlds()) {
        buffer<T> out(where, rows * columns, poison<T>());
        typename kernel::arguments arguments{matrix(out.upload(), rows, columns), {}};
        for (int i = 0; i < Length; ++i) arguments.values[i] = convert<T>(static_cast<float>(3 * i + 2));
        run<kernel>(where, {1, 1, 1}, arguments, 4);
        out.download();
        tally compared(name_of_shape<T>(where, 1, Length, Scope::warps) + ", put and get");
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < columns; ++column) {
                const int scope = row / 16 / Scope::warps;
                compared.expect_same(row, column, out.values[row * columns + column],
                                     arguments.values[(column / 16 + scope) % Length]);
            }
        }
    }
}

template <class T, int Rows, int Columns, class Scope>
struct filling_rows {
    using tile = shared_tile<T, Rows, Columns>;
    static constexpr int warps = scopes<Scope> * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> out;
        int first;
        T value;
    };
    struct shared_memory {
        tile one[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        each<Scope>(block, [&](auto& self) {
            const int mine = index_of(self);
            load(self, smem.one[mine], args.in.template tile<tile>(mine, 0));
            self.sync();
            fill_rows(self, smem.one[mine], args.first, args.value);
            self.sync();
            store(self, args.out.template tile<tile>(mine, 0), smem.one[mine]);
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
void test_filling_rows() {
    constexpr int rows = scopes<Scope> * Rows;
    constexpr std::size_t count = rows * Columns;
    for (const world where : worlds()) {
        for (const int first : {0, 1, Rows / 2 + 1, Rows - 1, Rows}) {
            buffer<T> in(where, count), out(where, count, poison<T>());
            fill_random(in.values, 22, -4.0f, 4.0f);
            const T value = convert<T>(9.0f);
            run<filling_rows<T, Rows, Columns, Scope>>(where, {1, 1, 1},
                                                       {matrix(static_cast<const T*>(in.upload()), rows, Columns),
                                                        matrix(out.upload(), rows, Columns), first, value},
                                                       2);
            out.download();
            tally compared(str_cat(name_of_shape<T>(where, Rows, Columns, Scope::warps), ", rows from ", first));
            for (int row = 0; row < rows; ++row) {
                for (int column = 0; column < Columns; ++column) {
                    const std::size_t i = row * Columns + column;
                    compared.expect_same(row, column, out.values[i], row % Rows < first ? in.values[i] : value);
                }
            }
        }
    }
}

TEST_CASE("fills rows of shared tiles from a first row on") {
    test_filling_rows<float, 16, 32, warp>();
    test_filling_rows<bf16, 48, 128, warpgroup>();
    test_filling_rows<e4m3, 32, 80, warpgroup>();
}

TEST_CASE("single elements of shared vectors") {
    test_put_and_get<float, 3, warp>();
    test_put_and_get<std::int32_t, 5, warpgroup>();
    test_put_and_get<bf16, 4, whole_block<3>>();
}

}  // namespace
