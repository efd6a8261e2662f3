// cp.async: rectangles past the edge at every remainder, and several groups that are waited for one by one.
#include <ops/memory/ragged.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T, int Rows, int Columns, class Scope>
struct ragged_async {
    static constexpr int warps = Scope::warps;
    using arguments = ragged_arguments<T>;
    struct shared_memory {
        shared_tile<T, Rows, Columns> held;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const grid_dim at = block.index(), grid = block.count();
        each<Scope>(block, [&](auto& self) {
            copy_async(self, smem.held, args.source(at));
            commit_copies(self);
            wait_copies(self);
            self.sync();
            store(self, args.tile(Rows, Columns, at, grid), smem.held);
            store(self, args.target(at, grid), smem.held);
        });
    }
};

template <class T, int Rows, int Columns, class Scope>
void test_ragged_async() {
    for (const world where : worlds()) {
        test_ragged(where, name_of_shape<T>(where, Rows, Columns, Scope::warps), Rows, Columns, T{},
                    [&](grid_dim grid, const ragged_arguments<T>& arguments) {
                        run<ragged_async<T, Rows, Columns, Scope>>(where, grid, arguments, 2);
                    });
    }
}

TEST_CASE("asynchronous copies and the edge of a matrix") {
    test_ragged_async<float, 8, 12, warp>();
    test_ragged_async<bf16, 16, 16, whole_block<2>>();
    test_ragged_async<std::int8_t, 8, 32, warp>();
    test_ragged_async<fp16, 8, 24, warpgroup>();
}

// Whole chunks into subtiles, beside and below each other, past an edge between chunks.
template <class T, int Rows, int Columns>
struct chunks_into_parts {
    static constexpr int warps = 4;
    static constexpr int part_rows = Rows / 2, part_columns = Columns / 2;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> out;
    };
    struct shared_memory {
        shared_tile<T, Rows, Columns> held;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            const int row = self.index() / 2 * part_rows, column = self.index() % 2 * part_columns;
            const auto from = args.in.at(row, column);
            const auto part = smem.held.template subtile<part_rows, part_columns>(row, column);
            if (from.is_16_byte_aligned()) {
                copy_aligned_async(self, part, from);
            } else {
                copy_async(self, part, from);
            }
            commit_copies(self);
            wait_copies(self);
        });
        block.sync();
        store(block, args.out.at(0, 0), smem.held);
    }
};

template <class T, int Rows, int Columns>
void test_chunks_into_parts(int rows, int columns, int row_stride) {
    for (const world where : worlds()) {
        buffer<T> in(where, static_cast<std::size_t>(rows) * row_stride), out(where, Rows * Columns, poison<T>());
        fill_random(in.values, 23, -100.0f, 100.0f);
        run<chunks_into_parts<T, Rows, Columns>>(where, {1, 1, 1},
                                                 {matrix(static_cast<const T*>(in.upload()), rows, columns, row_stride),
                                                  matrix(out.upload(), Rows, Columns)},
                                                 4);
        out.download();
        tally compared(str_cat(name_of_shape<T>(where, Rows, Columns, 4), ", ", rows, " x ", columns, " exist"));
        for (int row = 0; row < Rows; ++row) {
            for (int column = 0; column < Columns; ++column) {
                const bool exists = row < rows && column < columns;
                compared.expect_same(row, column, out.values[row * Columns + column],
                                     exists ? in.values[row * row_stride + column] : T{});
            }
        }
    }
}

TEST_CASE("chunks into subtiles") {
    test_chunks_into_parts<bf16, 32, 64>(32, 64, 64);
    test_chunks_into_parts<bf16, 32, 64>(29, 40, 48);
    test_chunks_into_parts<bf16, 64, 256>(61, 136, 144);
    test_chunks_into_parts<std::int8_t, 32, 128>(5, 112, 128);
    test_chunks_into_parts<fp16, 32, 128>(31, 61, 67);  // not whole chunks: the general path
}

// A ring of stages: while one tile is processed, the next ones are in flight.
template <class T, int Rows, int Columns, int Stages, class Scope>
struct staged {
    using tile = register_tile<T, Rows, Columns, Scope>;
    static constexpr int warps = Scope::warps;
    struct arguments {
        matrix_view<const T> in;
        matrix_view<T> from_registers, from_shared;
        int tiles;
    };
    struct shared_memory {
        shared_tile<T, Rows, Columns> stages[Stages];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        each<Scope>(block, [&](auto& self) {
            const auto ask_for = [&](int number) {
                if (number < args.tiles) {
                    copy_async(self, smem.stages[number % Stages], args.in.template tile<tile>(0, number));
                }
                commit_copies(self);  // an empty group at the end keeps the count simple
            };
            for (int i = 0; i < Stages - 1; ++i) ask_for(i);
            for (int i = 0; i < args.tiles; ++i) {
                ask_for(i + Stages - 1);
                wait_copies<Stages - 1>(self);
                self.sync();
                tile held;
                load(self, held, smem.stages[i % Stages]);
                store(self, args.from_registers.template tile<tile>(0, i), held);
                store(self, args.from_shared.template tile<tile>(0, i), smem.stages[i % Stages]);
                self.sync();
            }
            wait_copies(self);
        });
    }
};

template <class T, int Rows, int Columns, int Stages, class Scope>
void test_staged(int rows, int columns) {
    const int tiles = (columns + Columns - 1) / Columns;
    const std::size_t count = static_cast<std::size_t>(rows) * columns;
    for (const world where : worlds()) {
        buffer<T> in(where, count), from_registers(where, count, poison<T>()), from_shared(where, count, poison<T>());
        fill_random(in.values, 19, -100.0f, 100.0f);
        run<staged<T, Rows, Columns, Stages, Scope>>(
            where, {1, 1, 1},
            {matrix(static_cast<const T*>(in.upload()), rows, columns), matrix(from_registers.upload(), rows, columns),
             matrix(from_shared.upload(), rows, columns), tiles},
            20);
        from_registers.download();
        from_shared.download();
        tally compared(
            str_cat(name_of_shape<T>(where, Rows, Columns, Scope::warps), ", ", Stages, " stages, ", tiles, " tiles"));
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < columns; ++column) {
                const int i = row * columns + column;
                compared.expect_same(row, column, from_registers.values[i], in.values[i]);
                compared.expect_same(row, column, from_shared.values[i], in.values[i]);
            }
        }
    }
}

TEST_CASE("copies in several stages") {
    test_staged<bf16, 16, 32, 3, warp>(16, 32 * 7);
    test_staged<bf16, 16, 32, 3, warp>(13, 32);  // fewer tiles than stages, and missing rows
    test_staged<float, 64, 16, 4, warpgroup>(61, 16 * 9 + 5);
    test_staged<e4m3, 64, 64, 2, warpgroup>(64, 64 * 5 + 16);
    test_staged<fp16, 16, 8, 1, warp>(16, 8 * 4);
}

}  // namespace
