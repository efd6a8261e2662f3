// The swizzle of a tile in shared memory. A tile is divided into panels as wide as the swizzle. In a panel, rows follow
// each other, and the 16-byte chunks of a row are permuted so that a column of chunks has no bank conflicts.
//
//   128-byte swizzle, one panel of a bf16 tile (64 columns = 8 chunks a row); the number is the chunk's logical column:
//
//     row 0 | 0 1 2 3 4 5 6 7 |    The chunk index is XORed with address bits 7 to 9, which in a panel of 128-byte
//     row 1 | 1 0 3 2 5 4 7 6 |    rows are the row modulo 8. The 64- and 32-byte swizzles XOR two bits and one bit.
//     row 2 | 2 3 0 1 6 7 4 5 |    TMA writes and wgmma reads this pattern, so all three agree on a tile.
//     ...
//
// The width of the tile determines the swizzle, so it cannot differ between two uses of a tile.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
struct swizzled_tile_layout {
    static constexpr int element_bytes = sizeof(T);
    static constexpr int row_bytes = Columns * element_bytes;
    static_assert(Rows > 0 && Rows % 8 == 0, "imbrex: a shared tile's rows must be a positive multiple of 8");
    static_assert(row_bytes > 0 && row_bytes % 16 == 0, "imbrex: a shared tile's row must be a multiple of 16 bytes");

    // Width of the swizzle in bytes; 0 if a row is too narrow to be swizzled.
    static constexpr int swizzle_bytes = row_bytes % 128 == 0  ? 128
                                         : row_bytes % 64 == 0 ? 64
                                         : row_bytes % 32 == 0 ? 32
                                                               : 0;
    static constexpr int panel_bytes_wide = swizzle_bytes == 0 ? row_bytes : swizzle_bytes;
    static constexpr int panel_columns = panel_bytes_wide / element_bytes;
    static constexpr int panels = Columns / panel_columns;
    static constexpr int panel_bytes = Rows * panel_bytes_wide;
    static constexpr int bytes = panels * panel_bytes;

    // Eight rows are one repetition of the pattern, which depends on address bits. TMA requires 128 bytes.
    static constexpr int alignment = swizzle_bytes == 128  ? 1024
                                     : swizzle_bytes == 64 ? 512
                                     : swizzle_bytes == 32 ? 256
                                                           : 128;

    // Permutes the chunks of a byte offset within a panel. It is its own inverse.
    static constexpr IMBREX_FN int swizzle(int byte) { return byte ^ exchange(byte); }

    static constexpr IMBREX_FN int byte_offset(int row, int column) {
        const int panel = column / panel_columns;
        const int byte_in_row = (column % panel_columns) * element_bytes;
        // The XOR mask depends on the row alone, so the compiler can separate the other terms of the sum.
        const int row_start = row * panel_bytes_wide;
        return panel * panel_bytes + row_start + (exchange(row_start) ^ byte_in_row);
    }

  private:
    static constexpr IMBREX_FN int exchange(int byte) {
        constexpr int chunk_bits = swizzle_bytes == 128 ? 7 : swizzle_bytes == 64 ? 3 : swizzle_bytes == 32 ? 1 : 0;
        return (byte >> 3) & (chunk_bits << 4);
    }
};

}  // namespace imbrex
