// Views of global memory: extents and strides known at compile time and at run time, and rectangles at the edge.
#include <imbrex/core/element_types.hpp>
#include <imbrex/tile/global_view.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

using namespace imbrex;

namespace {

struct shape_8_16 {
    static constexpr int rows = 8;
    static constexpr int columns = 16;
};

TEST_CASE("dimensions, some of them constants") {
    constexpr dimensions<4, dynamic, 16, dynamic> mixed(7, 9);
    static_assert(mixed.rank == 4 && mixed.unknown == 2);
    static_assert(mixed[0] == 4 && mixed[1] == 7 && mixed[2] == 16 && mixed[3] == 9);

    // All of them may be given; the constants do not change.
    constexpr dimensions<4, dynamic, 16, dynamic> all(4, 7, 16, 9);
    static_assert(all[0] == 4 && all[1] == 7 && all[2] == 16 && all[3] == 9);

    constexpr dimensions<2, 3> fixed;
    static_assert(fixed.unknown == 0 && fixed[0] == 2 && fixed[1] == 3);
    constexpr dimensions<2, 3> fixed_and_given(2, 3);
    static_assert(fixed_and_given[0] == 2 && fixed_and_given[1] == 3);

    constexpr dimensions<dynamic, dynamic> unknown(5, 6);
    static_assert(unknown[0] == 5 && unknown[1] == 6);

    // Kernel arguments: constants take no space.
    static_assert(sizeof(dimensions<4, dynamic, 16>) == 8);
    static_assert(!std::is_constructible_v<dimensions<4, dynamic, 16>, int, int>);
}

TEST_CASE("a matrix, contiguous and with a stride") {
    std::vector<int> memory(1000);
    const auto packed = matrix(memory.data(), 10, 20);
    CHECK(packed.rows() == 10);
    CHECK(packed.columns() == 20);
    CHECK(packed.strides[0] == 20);
    CHECK(packed.strides[1] == 1);
    CHECK(packed.at(3, 4).pointer == memory.data() + 3 * 20 + 4);

    const auto apart = matrix(memory.data(), 10, 20, 32);
    CHECK(apart.strides[0] == 32);
    const auto part = apart.at(3, 4);
    CHECK(part.pointer == memory.data() + 3 * 32 + 4);
    CHECK(part.row_stride == 32);
    CHECK(part.rows == 7);
    CHECK(part.columns == 16);
    CHECK(part.at(2, 1) == memory.data() + 5 * 32 + 5);
}

TEST_CASE("rectangles know their in-bounds size") {
    std::vector<float> memory(50 * 40);
    const auto view = matrix(memory.data(), 50, 40);
    const auto inside = view.tile<shape_8_16>(1, 1);
    CHECK(inside.pointer == memory.data() + 8 * 40 + 16);
    CHECK(inside.rows == 42);  // more than the tile needs
    CHECK(inside.columns == 24);

    const auto corner = view.tile<shape_8_16>(6, 2);  // rows 48 to 55, columns 32 to 47
    CHECK(corner.rows == 2);
    CHECK(corner.columns == 8);
    CHECK(corner.has(1, 7));
    CHECK_FALSE(corner.has(2, 0));
    CHECK_FALSE(corner.has(0, 8));

    const auto beyond = view.tile<shape_8_16>(7, 3);
    CHECK(beyond.rows == -6);
    CHECK(beyond.columns == -8);
    CHECK_FALSE(beyond.has(0, 0));

    for (int rows = 0; rows <= 17; ++rows) {
        for (int columns = 0; columns <= 33; ++columns) {
            const auto ragged = matrix(memory.data(), rows, columns, 40);
            int count = 0;
            for (int i = 0; i < 3; ++i) {
                for (int j = 0; j < 3; ++j) {
                    const auto tile = ragged.tile<shape_8_16>(i, j);
                    for (int row = 0; row < 8; ++row) {
                        for (int column = 0; column < 16; ++column) count += tile.has(row, column) ? 1 : 0;
                    }
                }
            }
            CHECK(count == rows * columns);
        }
    }
}

TEST_CASE("batches come first") {
    std::vector<bf16> memory(4 * 3 * 64 * 32);
    // [batch, head, row, column], with the heads of a row side by side.
    using view_type = global_view<bf16, dimensions<dynamic, 3, dynamic, 32>, dimensions<dynamic, 32, 96, 1>>;
    const view_type view{memory.data(), {4, 64}, {64 * 96}};
    static_assert(view_type::rank == 4);
    CHECK(view.rows() == 64);
    CHECK(view.columns() == 32);
    const auto at = view.at(2, 1, 10, 5);
    CHECK(at.pointer == memory.data() + 2 * 64 * 96 + 1 * 32 + 10 * 96 + 5);
    CHECK(at.row_stride == 96);
    CHECK(at.rows == 54);
    CHECK(at.columns == 27);
    // Only row and column are counted in tiles.
    const auto tile = view.tile<shape_8_16>(2, 1, 3, 1);
    CHECK(tile.pointer == memory.data() + 2 * 64 * 96 + 1 * 32 + 24 * 96 + 16);
    CHECK(tile.rows == 40);
    CHECK(tile.columns == 16);
}

TEST_CASE("a view with a zero row stride, and offsets beyond 32 bits") {
    int one = 0;
    const global_view<int, dimensions<dynamic, 4>, dimensions<0, 1>> repeated{&one, {100}, {}};
    CHECK(repeated.at(50, 0).pointer == &one);
    CHECK(repeated.at(50, 0).row_stride == 0);

    const auto far = matrix(static_cast<char*>(nullptr), 100000, 100000);
    CHECK(reinterpret_cast<std::uintptr_t>(far.at(99999, 7).pointer) == std::uintptr_t{99999} * 100000 + 7);
}

TEST_CASE("a writable view converts to a read-only one") {
    float memory[4] = {};
    const global_tile<float> tile{memory, 2, 2, 2};
    const global_tile<const float> read = tile;
    CHECK(read.pointer == memory);
    CHECK(read.row_stride == 2);
    CHECK(read.rows == 2);
    CHECK(read.columns == 2);
    static_assert(!std::is_convertible_v<global_tile<const float>, global_tile<float>>);
    static_assert(!std::is_convertible_v<global_tile<float>, global_tile<const double>>);
}

}  // namespace
