// cp.async iterators: repeated copies by a warp in a mainloop, from addresses at known distances. Address computation
// happens once, before the loop. Completion is as in async_copy.hpp: commit_copies, wait_copies, sync.
//
//   const cp_async_object_iterator<subtile> weights(self, first);        copy_async(self, to, weights, distance)
//   const cp_async_object_iterator<vector> scales(weights, offset);      copy_async(self, to, scales, distance)
//   const cp_async_row_iterator<bf16, 16, 64> rows(self, matrix.at(0, column));
//                                                                        copy_async(self, tile, rows, columns_further)
//                                                                        load_rows(self, registers, rows, tile)
//   const cp_async_gather_iterator<bf16, 32, 64> rows(self, row_pointer, columns);
//                                                                        copy_async(self, subtile, rows, column)
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

// Objects of one type (a packed tile, a vector, a struct of such), each at a byte distance from the first. Pass the
// compile-time part of the distance separately: up to 2 KB is free.
template <class T>
struct cp_async_object_iterator : hw::cp_async_object_iterator<T> {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 16 == 0 && alignof(T) >= 16,
                  "imbrex: cp.async copies trivially copyable objects whose size and alignment are multiples of 16");
    using hw::cp_async_object_iterator<T>::cp_async_object_iterator;
};
template <class T>
IMBREX_KERNEL void copy_async(const warp& scope, std::type_identity_t<T>& to, const cp_async_object_iterator<T>& from,
                              std::int64_t distance, int near = 0, source here = source::current()) {
    from.copy_async(scope, to, distance, near, here);
}

// Rectangles of 8 or 16 rows and 64 columns, side by side in 16-byte aligned rows. Out-of-bounds elements are filled
// with zeros. Holds = false recomputes the load addresses each time, for kernels without a free register.
template <class T, int Rows, int Columns, bool Holds = true>
struct cp_async_row_iterator : hw::cp_async_row_iterator<T, Rows, Columns, Holds> {
    static_assert(sizeof(T) == 2 && Columns == 64 && (Rows == 8 || Rows == 16),
                  "imbrex: cp_async_row_iterator has 8 or 16 rows and 64 columns of 16-bit elements");
    using hw::cp_async_row_iterator<T, Rows, Columns, Holds>::cp_async_row_iterator;
};
template <class T, int Rows, int Columns, bool Holds>
IMBREX_KERNEL void copy_async(const warp& scope, shared_tile<T, Rows, Columns>& to,
                              const cp_async_row_iterator<T, Rows, Columns, Holds>& from, int column,
                              source here = source::current()) {
    from.copy_async(scope, to, column, here);
}
// Loads a landed rectangle as the B operand of mma.sync; 8 rows are padded with zeros.
template <class T, int Rows, int Columns, bool Holds>
IMBREX_KERNEL void load_rows(const warp& scope, warp_tile<T, 16, Columns>& to,
                             const cp_async_row_iterator<T, Rows, Columns, Holds>& rows,
                             const shared_tile<T, Rows, Columns>& from, source here = source::current()) {
    rows.load(scope, to, from, here);
}

// Rectangles of 128-byte rows that lie anywhere in global memory, such as the tokens of an expert: row_pointer(row) is the
// address of a row, a multiple of 16 bytes, or null. `columns`, a multiple of 16 bytes, exist in each. Rows and columns
// that do not exist are filled with zeros.
template <class T, int Rows, int Columns>
struct cp_async_gather_iterator : hw::cp_async_gather_iterator<T, Rows, Columns> {
    static_assert(sizeof(T) * Columns == 128 && Rows % 8 == 0,
                  "imbrex: cp_async_gather_iterator has a multiple of 8 rows of 128 bytes");
    using hw::cp_async_gather_iterator<T, Rows, Columns>::cp_async_gather_iterator;
};
template <class T, int Rows, int Columns, class Tile>
IMBREX_KERNEL void copy_async(const warp& scope, const shared_subtile<Tile, Rows, Columns>& to,
                              const cp_async_gather_iterator<T, Rows, Columns>& from, int column,
                              source here = source::current()) {
    from.copy_async(scope, to, column, here);
}

template <class T, int Rows, int Columns>
IMBREX_KERNEL void copy_async(const warp& scope, shared_tile<T, Rows, Columns>& to,
                              const cp_async_gather_iterator<T, Rows, Columns>& from, int column,
                              source here = source::current()) {
    from.copy_async(scope, to.template subtile<Rows, Columns>(0, 0), column, here);
}
template <class T, int Rows, int Columns>
IMBREX_KERNEL void load_rows(const warp& scope, warp_tile<T, 16, Columns>& to,
                             const cp_async_gather_iterator<T, Rows, Columns>& rows,
                             const shared_tile<T, Rows, Columns>& from, source here = source::current()) {
    static_assert(Rows == 8 || Rows == 16, "imbrex: a B operand has 8 or 16 rows");
    rows.load(scope, to, from, here);
}

}  // namespace imbrex
