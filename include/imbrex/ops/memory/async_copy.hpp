// Asynchronous copies from global to shared memory by cp.async, in groups: any number of `copy_async`, `commit_copies`
// to close a group, and `wait_copies<N>` until all but the newest N groups have landed. Each thread waits for its own
// copies, so the scope must sync before it reads those of others. For sm_80 and later; tma.hpp is Hopper's alternative.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

// The out-of-bounds part of the rectangle is filled with zeros.
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

// The same for a rectangle whose rows begin and end at multiples of 16 bytes (the caller checks `is_16_byte_aligned`).
// It has no branches, so the compiler can interleave the copies with matrix instructions.
template <class Scope, class Tile, int Rows, int Columns, class Element>
IMBREX_KERNEL void copy_aligned_async(const Scope& scope, shared_subtile<Tile, Rows, Columns> to,
                                      global_tile<Element> from, source here = source::current()) {
    hw::copy_aligned_async(scope, to, static_cast<global_tile<const typename Tile::element>>(from), here);
}

// A contiguous object: a packed tile, a vector, or a struct of these.
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
