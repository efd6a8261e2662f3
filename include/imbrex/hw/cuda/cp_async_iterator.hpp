// Copies that a warp makes again and again from places that follow from one another (cp.async). What a lane has to know for them
// is computed once and held in registers, so that a copy in the middle of a product costs little more than its own instructions.
// The compiler would rather compute most of it anew each time, to save a register for a while; so it is not told how it came about.
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

// Objects that lie at known distances from a first one. An instruction that copies takes up to 2 KB along, to either side, with an
// address; so of small objects the address that is held lies 2 KB behind the first, and the second is as near to it.
template <class T>
struct cp_async_object_iterator {
    static constexpr int middle = sizeof(T) <= 2048 ? 2048 : 0;
    const unsigned char* base;      // of this lane
    std::int64_t behind = -middle;  // it lie this lane's chunks of the first object

    IMBREX_KERNEL cp_async_object_iterator(const warp&, const T& object)
        : base(keep_in_register(reinterpret_cast<const unsigned char*>(&object) + lane() * 16 + middle)) {}

    // Each so many bytes behind another object: no address of its own is held.
    template <class Other>
    IMBREX_KERNEL cp_async_object_iterator(const cp_async_object_iterator<Other>& other, int behind)
        : base(other.base), behind(other.behind + uniform(behind)) {}

    IMBREX_KERNEL void copy_async(const warp&, T& to, std::int64_t distance, int near, source) const {
        constexpr int size = sizeof(T), row = 32 * 16;
        const int own = lane() * 16;
        unsigned char* const place = reinterpret_cast<unsigned char*>(&to) + own;
        // One address for all objects at that distance.
        const unsigned char* const from = keep_in_register(base + distance) + behind + near;
#pragma unroll
        for (int byte = 0; byte < size; byte += row) {
            if (byte + row <= size || byte + own < size) copy_bytes_async<16>(place + byte, from + byte, 16);
        }
    }
};

// Rectangles side by side in the rows of a matrix, 128 bytes wide, which begin and end at multiples of 16 bytes: to tiles in shared
// memory, and from there into the registers in which a product takes 8 or 16 rows as its right operand. Eight lanes copy a row, so
// that memory is asked for whole lines (with 32 bytes of each row at a time, products of 16 rows took a quarter longer). Who has no
// register left can have the place that ldmatrix reads computed each time.
template <class T, int Rows, int Columns, bool Holds>
struct cp_async_row_iterator {
    static_assert(sizeof(T) == 2 && Columns == 64 && (Rows == 8 || Rows == 16),
                  "imbrex: 8 or 16 rows of 128 bytes are copied again and again");
    using layout = swizzled_tile_layout<T, Rows, Columns>;
    static constexpr int in_chunk = 8, in_row = Columns / in_chunk, rows_at_once = 32 / in_row;

    const unsigned char* start;  // of the chunk in the first rectangle that belongs into this lane's place in a tile
    std::int64_t next_rows;      // from it to the lane's chunk in the rows that are copied next, in bytes
    int rows, columns;           // that exist from there on
    int line;                    // in a tile: of the matrix row whose place the lane gives to ldmatrix

    IMBREX_KERNEL cp_async_row_iterator(const warp&, const global_tile<const T>& from) {
        const int row = lane() / in_row, column = (lane() % in_row ^ row) * in_chunk;
        start = keep_in_register(reinterpret_cast<const unsigned char*>(from.at(row, column)));
        // One number for the whole warp, as the compiler can tell by this: it needs no register of each lane.
        next_rows = __shfl_sync(all_lanes, rows_at_once * from.row_stride * static_cast<int>(sizeof(T)), 0);
        rows = from.rows - row, columns = from.columns - column;
        line = Rows == 16 ? layout::byte_offset(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2 * in_chunk)
                          : layout::byte_offset(lane() % 8, lane() / 8 * in_chunk);
        if constexpr (Holds) line = keep_in_register(line);
    }

    // The rectangle that begins so many columns further on. What does not exist of it is zero.
    template <class Tile>
    IMBREX_KERNEL void copy_async(const warp&, Tile& to, int column, source) const {
        const std::uint32_t place = shared_address(to.storage) + lane() * 16;
        const unsigned char* from = start + std::int64_t{column} * static_cast<int>(sizeof(T));
        const int left = column < columns ? rows : 0;
#pragma unroll
        for (int row = 0; row < Rows; row += rows_at_once) {
            // The chunks of a row are exchanged by the row's last three bits, of which only the highest differs here.
            copy_chunk_async((place ^ (row % 8 * 16)) + row * layout::row_bytes, from, row < left ? 16 : 0);
            from += next_rows;
        }
    }

    // The two halves of a row's chunks are exchanged alike: what lies some chunks further on is at a place that differs by bits.
    template <class Tile>
    IMBREX_KERNEL void load(const warp&, fragment<T, 16, Columns, 1>& to, const Tile& from, source) const {
        constexpr int at_once = Rows == 16 ? 2 : 4;  // strips of 8 columns
#pragma unroll
        for (int strip = 0; strip < in_row; strip += at_once) {
            std::uint32_t words[4];
            load_matrices<false>(words, from.storage + (line ^ (strip * 16)));
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
};

}  // namespace imbrex::hw
