// cp.async: rectangles over the edge at every remainder, and copies in several groups that are waited for one by one.
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
        const position at = block.index(), grid = block.count();
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
                    [&](position grid, const ragged_arguments<T>& arguments) {
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

// A ring of stages: while one tile is worked on, the next ones are on their way.
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
                commit_copies(self);  // an empty group at the end, so that counting stays simple
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
            {matrix(static_cast<const T*>(in.send()), rows, columns), matrix(from_registers.send(), rows, columns),
             matrix(from_shared.send(), rows, columns), tiles},
            20);
        from_registers.fetch();
        from_shared.fetch();
        tally compared(
            sentence(name_of_shape<T>(where, Rows, Columns, Scope::warps), ", ", Stages, " stages, ", tiles, " tiles"));
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
    test_staged<bf16, 16, 32, 3, warp>(13, 32);  // fewer tiles than stages, and rows that do not exist
    test_staged<float, 64, 16, 4, warpgroup>(61, 16 * 9 + 5);
    test_staged<e4m3, 64, 64, 2, warpgroup>(64, 64 * 5 + 16);
    test_staged<fp16, 16, 8, 1, warp>(16, 8 * 4);
}

}  // namespace
