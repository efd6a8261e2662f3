// The layout of a shared tile: a bijection, and columns of chunks without bank conflicts.
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/swizzled_layout.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

using namespace imbrex;

namespace {

constexpr int swizzle_for(int row_bytes) {
    return row_bytes % 128 == 0 ? 128 : row_bytes % 64 == 0 ? 64 : row_bytes % 32 == 0 ? 32 : 0;
}

// A layout as numbers, so that one function checks all of them.
struct description {
    std::string name;
    int rows, columns, size;
    int bytes, row_bytes, swizzle_bytes, alignment, panels, panel_columns, panel_bytes;
    int (*byte_offset)(int row, int column);
    int (*swizzle)(int byte);
};

template <class T, int Rows, int Columns>
description describe() {
    using layout = swizzled_tile_layout<T, Rows, Columns>;
    return {name_of<T>(),
            Rows,
            Columns,
            static_cast<int>(sizeof(T)),
            layout::bytes,
            layout::row_bytes,
            layout::swizzle_bytes,
            layout::alignment,
            layout::panels,
            layout::panel_columns,
            layout::panel_bytes,
            [](int row, int column) { return layout::byte_offset(row, column); },
            [](int byte) { return layout::swizzle(byte); }};
}

void test_layout(const description& layout) {
    const int size = layout.size;
    const int width = layout.swizzle_bytes == 0 ? layout.row_bytes : layout.swizzle_bytes;
    INFO(layout.name, " ", layout.rows, " x ", layout.columns);
    CHECK(layout.bytes == layout.rows * layout.columns * size);
    CHECK(layout.swizzle_bytes == swizzle_for(layout.columns * size));
    CHECK(layout.panel_columns * size == width);
    CHECK(layout.panels * layout.panel_columns == layout.columns);
    // Eight rows of a panel are one pattern, which depends on address bits.
    CHECK(layout.alignment >= 128);
    CHECK(layout.alignment % (layout.swizzle_bytes == 0 ? 128 : 8 * layout.swizzle_bytes) == 0);
    CHECK(layout.panel_bytes % (8 * width) == 0);

    // A bijection: every element has its own offset within the tile, a multiple of the element size.
    std::vector<bool> taken(layout.bytes, false);
    bool once = true, within = true, aligned = true, chunks_whole = true, in_its_panel = true, own_inverse = true;
    for (int row = 0; row < layout.rows; ++row) {
        for (int column = 0; column < layout.columns; ++column) {
            const int byte = layout.byte_offset(row, column);
            within = within && byte >= 0 && byte + size <= layout.bytes;
            if (!within) continue;
            aligned = aligned && byte % size == 0;
            for (int i = 0; i < size; ++i) {
                once = once && !taken[byte + i];
                taken[byte + i] = true;
            }
            const int in_chunk = column * size % 16;
            chunks_whole = chunks_whole && byte - in_chunk == layout.byte_offset(row, column - in_chunk / size);
            in_its_panel = in_its_panel && byte / layout.panel_bytes == column / layout.panel_columns;
            // The row is unchanged, only the chunks within it are permuted.
            in_its_panel = in_its_panel && byte % layout.panel_bytes / width == row;
        }
    }
    for (int byte = 0; byte < layout.panel_bytes; ++byte) {
        own_inverse = own_inverse && layout.swizzle(layout.swizzle(byte)) == byte;
    }
    CHECK(within);
    CHECK(once);
    CHECK(aligned);
    CHECK(chunks_whole);
    CHECK(in_its_panel);
    CHECK(own_inverse);

    // Eight rows of one column of chunks, as ldmatrix reads them: together they cover all banks, each with its own. A
    // row with an odd number of chunks needs no permutation for that.
    for (int row = 0; row < layout.rows; row += 8) {
        for (int column = 0; column < layout.columns; column += 16 / size) {
            std::set<int> banks;
            for (int i = 0; i < 8; ++i) banks.insert(layout.byte_offset(row + i, column) % 128 / 16);
            CHECK(banks.size() == 8);
        }
    }
}

template <class T>
void test_widths() {
    constexpr int chunk = 16 / sizeof(T);
    test_layout(describe<T, 8, chunk>());
    test_layout(describe<T, 8, 2 * chunk>());
    test_layout(describe<T, 16, 3 * chunk>());
    test_layout(describe<T, 24, 4 * chunk>());
    test_layout(describe<T, 16, 5 * chunk>());
    test_layout(describe<T, 64, 6 * chunk>());
    test_layout(describe<T, 8, 8 * chunk>());
    test_layout(describe<T, 64, 12 * chunk>());
    test_layout(describe<T, 128, 16 * chunk>());
    test_layout(describe<T, 16, 24 * chunk>());
    test_layout(describe<T, 64, 32 * chunk>());
}

TEST_CASE("a shared tile's layout is a bijection without bank conflicts") {
    test_widths<float>();
    test_widths<std::int32_t>();
    test_widths<bf16>();
    test_widths<fp16>();
    test_widths<e4m3>();
    test_widths<std::int8_t>();
}

// The pattern of the header's diagram, as TMA writes it.
TEST_CASE("the 128-byte swizzle is that of the hardware") {
    using layout = swizzled_tile_layout<bf16, 16, 64>;
    for (int row = 0; row < 16; ++row) {
        for (int chunk = 0; chunk < 8; ++chunk) {
            CHECK(layout::byte_offset(row, chunk * 8) == row * 128 + (chunk ^ (row % 8)) * 16);
        }
    }
    CHECK(swizzled_tile_layout<bf16, 8, 32>::byte_offset(2, 0) == 2 * 64 + 16);
    CHECK(swizzled_tile_layout<bf16, 8, 16>::byte_offset(4, 0) == 4 * 32 + 16);
    CHECK(swizzled_tile_layout<bf16, 8, 8>::byte_offset(7, 0) == 7 * 16);
    CHECK(swizzled_tile_layout<bf16, 64, 128>::byte_offset(0, 64) == 64 * 128);  // the second panel
}

static_assert(swizzled_tile_layout<bf16, 64, 64>::alignment == 1024);
static_assert(swizzled_tile_layout<bf16, 64, 32>::alignment == 512);
static_assert(swizzled_tile_layout<bf16, 64, 16>::alignment == 256);
static_assert(swizzled_tile_layout<bf16, 64, 8>::alignment == 128);
static_assert(swizzled_tile_layout<float, 8, 256>::panels == 8);

}  // namespace
