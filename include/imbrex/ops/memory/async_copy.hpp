// Copies into shared memory that a scope starts and later waits for (cp.async), in groups: `copy_async` as often as
// wanted, `commit_copies` to close a group, `wait_copies<N>` until all but the newest N groups have landed. Each thread
// waits for its own part, so the scope must sync before it reads another's. This is the way of the sm_80 class; see
// tma.hpp for Hopper's.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/copy.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

// What does not exist of the rectangle lands as zero.
template <class Scope, class T, int Rows, int Columns, class Element>
IMBREX_KERNEL void copy_async(const Scope& scope, shared_tile<T, Rows, Columns>& to, global_tile<Element> from,
                              source here = source::current()) {
    hw::copy_in_async(scope, to, static_cast<global_tile<const T>>(from), here);
}
template <class Scope, class Tile, int Rows, int Columns, class Element>
IMBREX_KERNEL void copy_async(const Scope& scope, shared_subtile<Tile, Rows, Columns> to, global_tile<Element> from,
                              source here = source::current()) {
    hw::copy_in_async(scope, to, static_cast<global_tile<const typename Tile::element>>(from), here);
}

// The same for a rectangle whose rows begin and end at multiples of 16 bytes, which the caller has asked it (`is_16_byte_aligned`).
// No branch is taken for it, so that the copies can be mixed with the instructions of a product.
template <class Scope, class Tile, int Rows, int Columns, class Element>
IMBREX_KERNEL void copy_aligned_async(const Scope& scope, shared_subtile<Tile, Rows, Columns> to,
                                      global_tile<Element> from, source here = source::current()) {
    hw::copy_aligned_async(scope, to, static_cast<global_tile<const typename Tile::element>>(from), here);
}

// A contiguous object (a packed tile, a vector, a struct of such).
template <class Scope, class T>
IMBREX_KERNEL void copy_object_async(const Scope& scope, T& to, const T& from, source here = source::current()) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 16 == 0 && alignof(T) >= 16,
                  "imbrex: plain objects are copied in chunks of 16 bytes, from and to multiples of 16");
    hw::copy_object_async(scope, to, from, here);
}

template <class Scope>
IMBREX_KERNEL void commit_copies(const Scope& scope, source here = source::current()) {
    hw::copy_commit(scope, here);
}

template <int Left = 0, class Scope>
IMBREX_KERNEL void wait_copies(const Scope& scope, source here = source::current()) {
    hw::copy_wait<Left>(scope, here);
}

}  // namespace imbrex
