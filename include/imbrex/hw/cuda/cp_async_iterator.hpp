// cp.async iterators on the device: repeated copies whose per-lane addresses are computed once and stay in registers,
// so that a copy inside a mainloop costs little more than its own instructions. The compiler would recompute most of
// them to save a register for a while; an empty asm hides how they were computed.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/swizzled_layout.hpp>
#include <imbrex/hw/cuda/copy_register.hpp>
#include <imbrex/hw/cuda/copy_shared.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>

namespace imbrex::hw {

IMBREX_KERNEL int keep_in_register(int number) {
    asm("" : "+r"(number));
    return number;
}
template <class T>
IMBREX_KERNEL T* keep_in_register(T* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
}

// Objects at byte distances from a first one. cp.async has an immediate offset of up to 2 KB in either direction, so
// for small objects the base register points 2 KB past the first one and also reaches the second.
template <class T>
struct cp_async_object_iterator {
    static constexpr int middle = sizeof(T) <= 2048 ? 2048 : 0;
    const unsigned char* base;      // address held by this lane
    std::int64_t behind = -middle;  // offset from base to this lane's chunks of the first object

    IMBREX_KERNEL cp_async_object_iterator(const warp&, const T& object)
        : base(keep_in_register(reinterpret_cast<const unsigned char*>(&object) + lane() * 16 + middle)) {}

    // Objects at a fixed distance from those of another iterator: no register of its own.
    template <class Other>
    IMBREX_KERNEL cp_async_object_iterator(const cp_async_object_iterator<Other>& other, int behind)
        : base(other.base), behind(other.behind + uniform(behind)) {}

    IMBREX_KERNEL void copy_async(const warp&, T& to, std::int64_t distance, int near, source) const {
        constexpr int size = sizeof(T), row = 32 * 16;
        const int own = lane() * 16;
        unsigned char* const place = reinterpret_cast<unsigned char*>(&to) + own;
        // One address for all objects at this distance.
        const unsigned char* const from = keep_in_register(base + distance) + behind + near;
#pragma unroll
        for (int byte = 0; byte < size; byte += row) {
            if (byte + row <= size || byte + own < size) copy_bytes_async<16>(place + byte, from + byte, 16);
        }
    }
};

// The offset in a tile of the row whose address a lane passes to ldmatrix, and the load of 8 or 16 rows of 128 bytes as the
// B operand. The swizzle exchanges the halves of a row alike, so chunks further on are at an address that differs by XOR.
template <class Layout, int Rows>
IMBREX_KERNEL int operand_row_offset() {
    constexpr int in_chunk = 8;
    return Rows == 16 ? Layout::byte_offset(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2 * in_chunk)
                      : Layout::byte_offset(lane() % 8, lane() / 8 * in_chunk);
}
template <int Rows, class T, int Columns, class Tile>
IMBREX_KERNEL void load_operand_rows(fragment<T, 16, Columns, 1>& to, const Tile& from, int row_offset) {
    constexpr int at_once = Rows == 16 ? 2 : 4;  // blocks of 8 columns
#pragma unroll
    for (int strip = 0; strip < Columns / 8; strip += at_once) {
        std::uint32_t words[4];
        load_matrices<false>(words, from.storage + (row_offset ^ (strip * 16)));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (Rows == 16) {
                to.set_word(0, strip + i % 2, i / 2, words[i]);
            } else {
                to.set_word(0, strip + i, 0, words[i]);
                to.set_word(0, strip + i, 1, 0);
            }
        }
    }
}

// Rectangles of 128-byte rows, side by side in a matrix with 16-byte aligned rows: copied to shared tiles and loaded
// from there as the B operand of mma.sync, 8 or 16 rows. Eight lanes copy one row, so global memory is read in full
// 128-byte lines (with 32 bytes of each row at a time, products of 16 rows took a quarter longer). With Holds = false
// the ldmatrix address is recomputed each time, for kernels without a free register.
template <class T, int Rows, int Columns, bool Holds>
struct cp_async_row_iterator {
    static_assert(sizeof(T) == 2 && Columns == 64 && (Rows == 8 || Rows == 16),
                  "imbrex: cp_async_row_iterator has 8 or 16 rows of 128 bytes");
    using layout = swizzled_tile_layout<T, Rows, Columns>;
    static constexpr int in_chunk = 8, in_row = Columns / in_chunk, rows_at_once = 32 / in_row;

    const unsigned char* start;  // this lane's source chunk in the first rectangle
    std::int64_t next_rows;      // byte distance to the lane's chunk in the next rows
    int rows, columns;           // in bounds from there on
    int line;                    // tile offset of the row whose address the lane passes to ldmatrix

    IMBREX_KERNEL cp_async_row_iterator(const warp&, const global_tile<const T>& from) {
        const int row = lane() / in_row, column = (lane() % in_row ^ row) * in_chunk;
        start = keep_in_register(reinterpret_cast<const unsigned char*>(from.at(row, column)));
        // The shuffle makes the value warp-uniform for the compiler, so it goes to a uniform register.
        next_rows = __shfl_sync(all_lanes, rows_at_once * from.row_stride * static_cast<int>(sizeof(T)), 0);
        rows = from.rows - row, columns = from.columns - column;
        line = operand_row_offset<layout, Rows>();
        if constexpr (Holds) line = keep_in_register(line);
    }

    // Copies the rectangle that starts `column` columns later; out-of-bounds elements are zero.
    template <class Tile>
    IMBREX_KERNEL void copy_async(const warp&, Tile& to, int column, source) const {
        const std::uint32_t place = shared_address(to.storage) + lane() * 16;
        const unsigned char* from = start + std::int64_t{column} * static_cast<int>(sizeof(T));
        const int left = column < columns ? rows : 0;
#pragma unroll
        for (int row = 0; row < Rows; row += rows_at_once) {
            // The swizzle XORs the chunk index with the last three bits of the row; between these rows only the highest
            // bit differs.
            copy_chunk_async((place ^ (row % 8 * 16)) + row * layout::row_bytes, from, row < left ? 16 : 0);
            from += next_rows;
        }
    }

    template <class Tile>
    IMBREX_KERNEL void load(const warp&, fragment<T, 16, Columns, 1>& to, const Tile& from, source) const {
        load_operand_rows<Rows>(to, from, line);
    }
};

// Rows anywhere in global memory, each of which begins at a multiple of 16 bytes: rectangles of 128-byte rows, side by
// side. As above, eight lanes copy one row.
template <class T, int Rows, int Columns>
struct cp_async_gather_iterator {
    static_assert(sizeof(T) * Columns == 128 && Rows % 8 == 0,
                  "imbrex: cp_async_gather_iterator has a multiple of 8 rows of 128 bytes");
    static constexpr int in_chunk = 16 / static_cast<int>(sizeof(T)), in_row = 8, rows_at_once = 4;

    const T* start[Rows / rows_at_once];  // this lane's chunk in the first rectangle, without the swizzle; may be null
    int columns;                          // in bounds from this lane's chunk on

    template <class RowPointer>
    IMBREX_KERNEL cp_async_gather_iterator(const warp&, const RowPointer& row_pointer, int columns)
        : columns(columns - source_column()) {
#pragma unroll
        for (int i = 0; i < Rows / rows_at_once; ++i) start[i] = row_pointer(i * rows_at_once + lane() / in_row);
    }

    // Rows without a pointer, and columns that do not exist, become zero.
    template <class Shared>
    IMBREX_KERNEL void copy_async(const warp&, const Shared& to, int column, source) const {
        const std::uint32_t place = shared_address(to.at(0, 0)) + lane() * 16;
        // Between the rows of a lane only the highest bit of the swizzle differs: 64 bytes.
#pragma unroll
        for (int i = 0; i < Rows / rows_at_once; ++i) {
            const bool odd = i % 2 == 1;
            const bool exists = start[i] != nullptr && column < columns;
            const T* const from = start[i] + (exists ? column + source_column() : 0);
            copy_chunk_async((place ^ (odd ? 64 : 0)) + i * rows_at_once * 128, from, exists ? 16 : 0);
        }
    }

    // A landed rectangle of 8 or 16 rows as the B operand.
    template <class Tile>
    IMBREX_KERNEL void load(const warp&, fragment<T, 16, Columns, 1>& to, const Tile& from, source) const {
        load_operand_rows<Rows>(to, from, operand_row_offset<typename Tile::layout, Rows>());
    }

  private:
    // The column whose chunk the swizzle places at this lane's chunk of an even row.
    static IMBREX_KERNEL int source_column() {
        return (lane() % in_row ^ lane() / in_row) * in_chunk;
    }
};

}  // namespace imbrex::hw
