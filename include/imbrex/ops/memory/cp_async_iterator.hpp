// Copies that a warp makes again and again in a loop that has no time to lose: from places that follow from one another, so that
// what there is to know of them is found out once, before the loop. Otherwise as in async_copy.hpp: commit_copies, wait_copies, sync.
//
//   const cp_async_object_iterator<piece> weights(self, first);                       copy_async(self, place, weights, distance)
//   const cp_async_object_iterator<vector> scales(weights, bytes behind);             copy_async(self, place, scales, distance)
//   const cp_async_row_iterator<bf16, 16, 64> rows(self, matrix.at(0, column));      copy_async(self, tile, rows, columns further on)
//                                                                            load_rows(self, registers, rows, tile)
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/cp_async_iterator.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

// Objects of one type (a packed tile, a vector, a struct of such), each at a distance in bytes from the first. What is known of it
// when the kernel is compiled is better told apart: up to 2 KB costs nothing.
template <class T>
struct cp_async_object_iterator : hw::cp_async_object_iterator<T> {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 16 == 0 && alignof(T) >= 16,
                  "imbrex: plain objects are copied in chunks of 16 bytes, from and to multiples of 16");
    using hw::cp_async_object_iterator<T>::cp_async_object_iterator;
};
template <class T>
IMBREX_KERNEL void copy_async(const warp& scope, std::type_identity_t<T>& to, const cp_async_object_iterator<T>& from,
                              std::int64_t distance, int near = 0, source here = source::current()) {
    from.copy_async(scope, to, distance, near, here);
}

// Rectangles of 8 or 16 rows and 64 columns, side by side in rows that begin and end at multiples of 16 bytes. What does not exist
// of one lands as zero. In a kernel that has no register left, what loads need to know is computed each time (Holds = false).
template <class T, int Rows, int Columns, bool Holds = true>
struct cp_async_row_iterator : hw::cp_async_row_iterator<T, Rows, Columns, Holds> {
    static_assert(sizeof(T) == 2 && Columns == 64 && (Rows == 8 || Rows == 16),
                  "imbrex: rectangles of 8 or 16 rows and 64 columns of 16 bits are copied again and again");
    using hw::cp_async_row_iterator<T, Rows, Columns, Holds>::cp_async_row_iterator;
};
template <class T, int Rows, int Columns, bool Holds>
IMBREX_KERNEL void copy_async(const warp& scope, shared_tile<T, Rows, Columns>& to,
                              const cp_async_row_iterator<T, Rows, Columns, Holds>& from, int column,
                              source here = source::current()) {
    from.copy_async(scope, to, column, here);
}
// One that has landed, as the right operand of a product; of eight rows, with zeros below them.
template <class T, int Rows, int Columns, bool Holds>
IMBREX_KERNEL void load_rows(const warp& scope, warp_tile<T, 16, Columns>& to,
                             const cp_async_row_iterator<T, Rows, Columns, Holds>& rows,
                             const shared_tile<T, Rows, Columns>& from, source here = source::current()) {
    rows.load(scope, to, from, here);
}

}  // namespace imbrex
