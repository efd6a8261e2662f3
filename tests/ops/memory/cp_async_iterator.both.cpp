// cp.async iterators: rectangles side by side in rows, over every edge, through shared memory into a B operand; objects
// at distances from a first one, and relative to another iterator.
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>

#include <ops/tools.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Rectangles are copied from the last to the first, two in flight at a time.
template <class T, int Rows>
struct rows_again {
    static constexpr int warps = 1, columns = 64;
    struct arguments {
        matrix_view<const T> in;
        int first_column;
        int tiles;
        matrix_view<T> from_shared, from_registers;
    };
    struct shared_memory {
        shared_tile<T, Rows, columns> held[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            const cp_async_row_iterator<T, Rows, columns> rows(self, args.in.at(0, args.first_column));
            const auto ask_for = [&](int tile) {
                if (tile >= 0) copy_async(self, smem.held[tile % 2], rows, tile * columns);
                commit_copies(self);
            };
            ask_for(args.tiles - 1);
            ask_for(args.tiles - 2);
            for (int tile = args.tiles - 1; tile >= 0; --tile) {
                wait_copies<1>(self);
                self.sync();
                warp_tile<T, 16, columns> operand;
                load_rows(self, operand, rows, smem.held[tile % 2]);
                store(self, args.from_registers.at(0, tile * columns), operand);
                store(self, args.from_shared.at(0, tile * columns), smem.held[tile % 2]);
                self.sync();
                ask_for(tile - 2);
            }
            wait_copies(self);
        });
    }
};

template <class T, int Rows>
void test_rows_again(int rows, int columns, int row_stride, int first_column) {
    const int tiles = (columns - first_column + 63) / 64, wide = tiles * 64;
    for (const world where : worlds()) {
        buffer<T> in(where, static_cast<std::size_t>(rows) * row_stride);
        buffer<T> from_shared(where, Rows * wide, poison<T>()), from_registers(where, 16 * wide, poison<T>());
        fill_random(in.values, 29, -100.0f, 100.0f);
        run<rows_again<T, Rows>>(
            where, {1, 1, 1},
            {matrix(static_cast<const T*>(in.upload()), rows, columns, row_stride), first_column, tiles,
             matrix(from_shared.upload(), Rows, wide), matrix(from_registers.upload(), 16, wide)},
            20);
        from_shared.download();
        from_registers.download();
        tally compared(str_cat(name_of_shape<T>(where, Rows, 64, 1), ", ", rows, " x ", columns, " from column ",
                               first_column, " on"));
        for (int row = 0; row < 16; ++row) {
            for (int column = 0; column < wide; ++column) {
                const bool exists = row < rows && row < Rows && first_column + column < columns;
                const T wanted = exists ? in.values[row * row_stride + first_column + column] : T{};
                compared.expect_same(row, column, from_registers.values[row * wide + column], wanted);
                if (row < Rows) compared.expect_same(row, column, from_shared.values[row * wide + column], wanted);
            }
        }
    }
}

TEST_CASE("cp_async_row_iterator copies rectangles of rows") {
    test_rows_again<bf16, 16>(16, 256, 256, 0);
    test_rows_again<bf16, 16>(16, 200, 208, 64);  // the last rectangle is partial
    test_rows_again<bf16, 8>(8, 192, 192, 0);
    for (int rows = 1; rows <= 16; ++rows) test_rows_again<bf16, 16>(rows, 72, 80, 0);
    for (int rows = 1; rows <= 8; ++rows) test_rows_again<fp16, 8>(rows, 136, 136, 8);
    test_rows_again<fp16, 16>(20, 64, 64, 0);  // the matrix has more rows than are copied
}

// Records of two vectors; a warp copies every other record.
template <int First, int Second>
struct record {
    shared_vector<float, First> first;
    shared_vector<float, Second> second;
};

template <int First, int Second>
struct objects_again {
    static constexpr int warps = 2;
    using one = record<First, Second>;
    struct arguments {
        const one* in;
        float* out;
        int count;
    };
    struct shared_memory {
        one places[warps];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            one& own = smem.places[self.index()];
            const cp_async_object_iterator<shared_vector<float, First>> first(self, args.in[self.index()].first);
            const cp_async_object_iterator<shared_vector<float, Second>> second(first,
                                                                                static_cast<int>(sizeof(own.first)));
            for (int i = self.index(); i < args.count; i += warps) {
                const std::int64_t distance = std::int64_t{i - self.index()} * static_cast<int>(sizeof(one));
                // The distance in one argument or in two.
                const int near = i / warps % 2 * static_cast<int>(sizeof(one));
                copy_async(self, own.first, first, distance - near, near);
                copy_async(self, own.second, second, distance - near, near);
                commit_copies(self);
                wait_copies(self);
                self.sync();
                store(self, args.out + i * (First + Second), First, own.first);
                store(self, args.out + i * (First + Second) + First, Second, own.second);
                self.sync();
            }
        });
    }
};

template <int First, int Second>
void test_objects_again(int count) {
    using one = record<First, Second>;
    std::vector<float> numbers(static_cast<std::size_t>(count) * (First + Second));
    fill_random(numbers, 31, -100.0f, 100.0f);
    for (const world where : worlds()) {
        buffer<one> in(where, static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) {
            const float* const from = numbers.data() + i * (First + Second);
            std::copy(from, from + First, in.values[i].first.storage);
            std::copy(from + First, from + First + Second, in.values[i].second.storage);
        }
        buffer<float> out(where, numbers.size(), poison<float>());
        run<objects_again<First, Second>>(where, {1, 1, 1}, {in.upload(), out.upload(), count}, 20);
        out.download();
        tally compared(str_cat(name_of(where), ", ", count, " objects of ", First, " and ", Second, " numbers"));
        for (int i = 0; i < static_cast<int>(numbers.size()); ++i) {
            compared.expect_same(i / (First + Second), i % (First + Second), out.values[i], numbers[i]);
        }
    }
}

TEST_CASE("cp_async_object_iterator copies objects") {
    test_objects_again<32, 128>(5);
    test_objects_again<512, 32>(4);
    test_objects_again<160, 96>(7);  // more than one chunk per lane, and less than one
}

}  // namespace
