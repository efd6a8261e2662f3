// Synchronous loads and stores between registers, shared memory and global memory, in all pairs, all element types and
// both layouts, whole, in subtiles and past the edge.
#include <ops/memory/ragged.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Global to shared, to registers, to global; and from the registers to another shared tile, and to global.
template <class T, int Rows, int Columns, class Scope, register_layout Layout>
struct round_trip {
    using tile = register_tile<T, Rows, Columns, Scope, Layout>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> from_registers, from_shared;
    };
    struct shared_memory {
        shared_tile<T, Rows, Columns> first[2], second[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        each<Scope>(block, [&](auto& self) {
            const int mine = self.index();
            tile held;
            load(self, smem.first[mine], args.in.template tile<tile>(mine, 0));
            self.sync();
            load(self, held, smem.first[mine]);
            store(self, args.from_registers.template tile<tile>(mine, 0), held);
            store(self, smem.second[mine], held);
            self.sync();
            store(self, args.from_shared.template tile<tile>(mine, 0), smem.second[mine]);
        });
    }
};

template <class T, int Rows, int Columns, class Scope, register_layout Layout = register_layout::row_major>
void test_round_trip() {
    constexpr std::size_t count = 2 * Rows * Columns;
    for (const world where : worlds()) {
        buffer<T> in(where, count), from_registers(where, count, poison<T>()), from_shared(where, count, poison<T>());
        fill_random(in.values, 16, -100.0f, 100.0f);
        run<round_trip<T, Rows, Columns, Scope, Layout>>(
            where, {1, 1, 1},
            {matrix(static_cast<const T*>(in.upload()), 2 * Rows, Columns),
             matrix(from_registers.upload(), 2 * Rows, Columns), matrix(from_shared.upload(), 2 * Rows, Columns)},
            4);
        from_registers.download();
        from_shared.download();
        const std::string name = name_of_shape<T>(where, Rows, Columns, Scope::warps) +
                                 (Layout == register_layout::column_major ? ", column-major" : "");
        tally loaded(name + ", shared to registers"), stored(name + ", registers to shared");
        for (std::size_t i = 0; i < count; ++i) {
            const int row = static_cast<int>(i) / Columns, column = static_cast<int>(i) % Columns;
            loaded.expect_same(row, column, from_registers.values[i], in.values[i]);
            stored.expect_same(row, column, from_shared.values[i], in.values[i]);
        }
    }
}

TEST_CASE("between global memory, shared memory and registers") {
    test_round_trip<float, 16, 8, warp>();
    test_round_trip<std::int32_t, 32, 72, warp>();
    test_round_trip<bf16, 16, 8, warp>();
    test_round_trip<fp16, 48, 24, warp>();
    test_round_trip<bf16, 64, 128, warp>();
    test_round_trip<e4m3, 16, 16, warp>();
    test_round_trip<std::int8_t, 32, 48, warp>();
    test_round_trip<float, 64, 64, warpgroup>();
    test_round_trip<bf16, 128, 64, warpgroup>();
    test_round_trip<e4m3, 64, 128, warpgroup>();
}

TEST_CASE("between shared memory and column-major registers") {
    test_round_trip<float, 8, 16, warp, register_layout::column_major>();
    test_round_trip<bf16, 8, 16, warp, register_layout::column_major>();
    test_round_trip<fp16, 24, 64, warp, register_layout::column_major>();
    test_round_trip<std::int8_t, 16, 32, warp, register_layout::column_major>();
    test_round_trip<bf16, 32, 128, warpgroup, register_layout::column_major>();
}

// A subtile of one shared tile, at any position, to a subtile of another.
template <class T, int Rows, int Columns, int SubtileRows, int SubtileColumns, register_layout Layout>
struct parts {
    static constexpr int warps = 1;
    static constexpr int chunk = 16 / sizeof(T);
    static constexpr int steps_down = Rows - SubtileRows, steps_across = (Columns - SubtileColumns) / chunk;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> out;
        T background;
    };
    struct shared_memory {
        shared_tile<T, Rows, Columns> from, to;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const int down = block.index().x, across = block.index().y;
        block.each_warp([&](warp& self) {
            load(self, smem.from, args.in.at(0, 0));
            fill(self, smem.to, args.background);
            self.sync();
            register_tile<T, SubtileRows, SubtileColumns, warp, Layout> held;
            load(self, held, smem.from.template subtile<SubtileRows, SubtileColumns>(down, across * chunk));
            store(self,
                  smem.to.template subtile<SubtileRows, SubtileColumns>(steps_down - down,
                                                                        (steps_across - across) * chunk),
                  held);
            self.sync();
            store(self, args.out.template tile<shared_tile<T, Rows, Columns>>(down, across), smem.to);
        });
    }
};

template <class T, int Rows, int Columns, int SubtileRows, int SubtileColumns,
          register_layout Layout = register_layout::row_major>
void test_parts() {
    using kernel = parts<T, Rows, Columns, SubtileRows, SubtileColumns, Layout>;
    constexpr int down_count = kernel::steps_down + 1, across_count = kernel::steps_across + 1;
    constexpr int width = Columns * across_count;
    for (const world where : worlds()) {
        buffer<T> in(where, Rows * Columns),
            out(where, static_cast<std::size_t>(Rows) * down_count * width, poison<T>());
        fill_random(in.values, 17, 1.0f, 100.0f);
        const T background = convert<T>(-5.0f);
        run<kernel>(where, {down_count, across_count, 1},
                    {matrix(static_cast<const T*>(in.upload()), Rows, Columns),
                     matrix(out.upload(), Rows * down_count, width), background},
                    1);
        out.download();
        tally compared(name_of_shape<T>(where, SubtileRows, SubtileColumns, 1) + " as a subtile");
        for (int down = 0; down < down_count; ++down) {
            for (int across = 0; across < across_count; ++across) {
                const int to_row = kernel::steps_down - down;
                const int to_column = (kernel::steps_across - across) * kernel::chunk;
                for (int row = 0; row < Rows; ++row) {
                    for (int column = 0; column < Columns; ++column) {
                        const int part_row = row - to_row, part_column = column - to_column;
                        const bool copied =
                            part_row >= 0 && part_row < SubtileRows && part_column >= 0 && part_column < SubtileColumns;
                        const T wanted =
                            copied ? in.values[(down + part_row) * Columns + across * kernel::chunk + part_column]
                                   : background;
                        compared.expect_same(
                            row, column, out.values[(down * Rows + row) * width + across * Columns + column], wanted);
                    }
                }
            }
        }
    }
}

TEST_CASE("subtiles of shared tiles at any position") {
    test_parts<bf16, 32, 64, 16, 16>();
    test_parts<float, 24, 48, 16, 8>();
    test_parts<e4m3, 24, 64, 16, 32>();
    test_parts<fp16, 24, 48, 16, 16, register_layout::column_major>();
}

template <class T, int Rows, int Columns, class Scope, register_layout Layout>
struct ragged_registers {
    static constexpr int warps = Scope::warps;
    using arguments = ragged_arguments<T>;
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        const grid_dim at = block.index(), grid = block.count();
        each<Scope>(block, [&](auto& self) {
            register_tile<T, Rows, Columns, Scope, Layout> held;
            load(self, held, args.source(at), args.outside);
            store(self, args.tile(Rows, Columns, at, grid), held);
            store(self, args.target(at, grid), held);
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
struct ragged_shared {
    static constexpr int warps = Scope::warps;
    using arguments = ragged_arguments<T>;
    struct shared_memory {
        shared_tile<T, Rows, Columns> held;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const grid_dim at = block.index(), grid = block.count();
        each<Scope>(block, [&](auto& self) {
            load(self, smem.held, args.source(at), args.outside);
            self.sync();
            store(self, args.tile(Rows, Columns, at, grid), smem.held);
            store(self, args.target(at, grid), smem.held);
        });
    }
};

template <class Kernel, class T>
void test_ragged_kernel(const std::string& of, int rows, int columns, float outside) {
    for (const world where : worlds()) {
        test_ragged(where, name_of_shape<T>(where, rows, columns, Kernel::warps) + ", " + of, rows, columns,
                    convert<T>(outside), [&](grid_dim grid, const ragged_arguments<T>& arguments) {
                        run<Kernel>(where, grid, arguments, 1);
                    });
    }
}
template <class T, int Rows, int Columns, class Scope, register_layout Layout = register_layout::row_major>
void test_ragged_registers(float outside) {
    test_ragged_kernel<ragged_registers<T, Rows, Columns, Scope, Layout>, T>("registers", Rows, Columns, outside);
}
template <class T, int Rows, int Columns, class Scope>
void test_ragged_shared(float outside) {
    test_ragged_kernel<ragged_shared<T, Rows, Columns, Scope>, T>("shared", Rows, Columns, outside);
}

TEST_CASE("registers and the edge of a matrix") {
    test_ragged_registers<float, 16, 8, warp>(-3.0f);
    test_ragged_registers<bf16, 16, 16, warp>(0.0f);
    test_ragged_registers<std::int8_t, 16, 16, warp>(77.0f);
    test_ragged_registers<bf16, 8, 16, warp, register_layout::column_major>(5.0f);
    test_ragged_registers<float, 64, 8, warpgroup>(1.0f);
}

TEST_CASE("shared tiles and the edge of a matrix") {
    test_ragged_shared<float, 8, 12, warp>(-3.0f);
    test_ragged_shared<bf16, 16, 16, whole_block<2>>(0.0f);
    test_ragged_shared<std::int8_t, 8, 32, warp>(77.0f);
    test_ragged_shared<fp16, 8, 24, warpgroup>(5.0f);
}

// Row values, column values and shared vectors, of which the first `block - 1` elements exist.
template <class T, int Rows, int Columns, class Scope>
struct vectors {
    static constexpr int warps = Scope::warps;
    static constexpr int each_rows = 5 * Rows, each_columns = 3 * Columns;
    struct arguments {
        const T* in;
        T* rows;     // for each block: loaded; stored in part; through shared memory; back; shared in part
        T* columns;  // for each block: loaded; stored in part; through shared memory
        T outside;
    };
    struct shared_memory {
        shared_vector<T, Rows> rows, back;
        shared_vector<T, Columns> columns;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const int exist = block.index().x - 1;
        T* rows = args.rows + each_rows * block.index().x;
        T* columns = args.columns + each_columns * block.index().x;
        each<Scope>(block, [&](auto& self) {
            row_values<T, Rows, Scope> by_row, by_row_again;
            load(self, by_row, args.in, exist, args.outside);
            store(self, rows, Rows, by_row);
            store(self, rows + Rows, exist, by_row);
            load(self, smem.rows, args.in, exist, args.outside);
            load(self, smem.columns, args.in, exist, args.outside);
            store(self, smem.back, by_row);
            self.sync();
            load(self, by_row_again, smem.rows);
            store(self, rows + 2 * Rows, Rows, by_row_again);
            store(self, rows + 3 * Rows, Rows, smem.back);
            store(self, rows + 4 * Rows, exist, smem.back);

            column_values<T, Columns> by_column, by_column_again;
            load(self, by_column, args.in, exist, args.outside);
            store(self, columns, Columns, by_column);
            store(self, columns + Columns, exist, by_column);
            load(self, by_column_again, smem.columns);
            store(self, columns + 2 * Columns, Columns, by_column_again);
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
void test_vectors() {
    using kernel = vectors<T, Rows, Columns, Scope>;
    constexpr int length = Rows > Columns ? Rows : Columns, blocks = length + 4;
    for (const world where : worlds()) {
        buffer<T> in(where, length + 2), rows(where, blocks * kernel::each_rows, poison<T>()),
            columns(where, blocks * kernel::each_columns, poison<T>());
        fill_random(in.values, 18, -100.0f, 100.0f);
        const T outside = convert<T>(-7.0f);
        run<kernel>(where, {blocks, 1, 1}, {in.upload(), rows.upload(), columns.upload(), outside}, 1);
        rows.download();
        columns.download();
        tally compared(name_of_shape<T>(where, Rows, Columns, Scope::warps) + ", vectors");
        for (int block = 0; block < blocks; ++block) {
            const int exist = block - 1;
            const auto compare = [&](const T* values, int count, bool in_part, int which) {
                for (int i = 0; i < count; ++i) {
                    const T wanted = i < exist ? in.values[i] : in_part ? poison<T>() : outside;
                    compared.expect(same_bits(values[i], wanted), exist, "exist, vector", which, "element", i, "is",
                                    convert<float>(values[i]), "not", convert<float>(wanted));
                }
            };
            const T* by_row = rows.values.data() + block * kernel::each_rows;
            for (int which = 0; which < 5; ++which)
                compare(by_row + which * Rows, Rows, which == 1 || which == 4, which);
            const T* by_column = columns.values.data() + block * kernel::each_columns;
            for (int which = 0; which < 3; ++which) {
                compare(by_column + which * Columns, Columns, which == 1, 5 + which);
            }
        }
    }
}

TEST_CASE("row values, column values and shared vectors") {
    test_vectors<float, 16, 24, warp>();
    test_vectors<bf16, 48, 8, warp>();
    test_vectors<std::int32_t, 128, 40, warpgroup>();
}

// A rectangle inside a matrix, past its edge.
template <class T, class Scope>
struct filling {
    static constexpr int warps = 4;
    struct arguments {
        global_tile<T> where;
        T value;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            if (self.index() == 0) fill(self, args.where, args.value);
        });
    }
};

template <class T, class Scope>
void test_filling() {
    for (const world where : worlds()) {
        for (const auto& [rows, columns] : {std::pair{3, 70}, {64, 5}, {0, 4}, {-2, 4}, {7, 0}}) {
            buffer<T> all(where, 80 * 80, T(1));
            const global_tile<T> inside{all.upload() + 4 * 80 + 3, 80, rows, columns};
            run<filling<T, Scope>>(where, {1, 1, 1}, {inside, T(7)}, 2);
            all.download();
            tally compared(str_cat(name_of(where), ", fill of ", rows, " x ", columns));
            for (int i = 0; i < 80 * 80; ++i) {
                const int row = i / 80 - 4, column = i % 80 - 3;
                const bool hit = row >= 0 && row < rows && column >= 0 && column < columns;
                compared.expect_same(i / 80, i % 80, all.values[i], hit ? T(7) : T(1));
            }
        }
    }
}

TEST_CASE("a rectangle of global memory filled with one value") {
    test_filling<float, warp>();
    test_filling<bf16, warpgroup>();
}

}  // namespace
