// Synchronous loads and stores between registers, shared memory and global memory, at any scope. A rectangle of global
// memory may extend past the edge of its matrix: the out-of-bounds part loads as `fill_value` and is not stored.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

namespace detail {

template <class T, class Element>
constexpr bool same_elements() {
    static_assert(std::is_same_v<T, std::remove_const_t<Element>>,
                  "imbrex: load and store do not convert: both sides must have the same element type; convert the "
                  "register tile with convert(self, to, from)");
    return std::is_same_v<T, std::remove_const_t<Element>>;
}

}  // namespace detail

// Shared tile or subtile to registers, and back.
template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Shared>
requires requires {
    Shared::rows;
}
IMBREX_KERNEL void load(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& to, const Shared& from,
                        source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    static_assert(Shared::rows == Rows && Shared::columns == Columns,
                  "imbrex: load needs a shared tile or subtile of the same shape as the register tile");
    if constexpr (detail::same_elements<T, typename Shared::element>()) hw::load_shared(scope, to, from, here);
}
template <class Scope, class Shared, class T, int Rows, int Columns, int Warps, register_layout Layout>
requires requires {
    std::remove_reference_t<Shared>::rows;
}
IMBREX_KERNEL void store(const Scope& scope, Shared&& to, const hw::fragment<T, Rows, Columns, Warps, Layout>& from,
                         source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    using shared = std::remove_reference_t<Shared>;
    static_assert(shared::rows == Rows && shared::columns == Columns,
                  "imbrex: store needs a shared tile or subtile of the same shape as the register tile");
    if constexpr (detail::same_elements<T, typename shared::element>()) hw::store_shared(scope, to, from, here);
}

// Global memory to registers, and back.
template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Element>
IMBREX_KERNEL void load(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& to,
                        global_tile<Element> from, T fill_value = T{}, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    if constexpr (detail::same_elements<T, Element>()) {
        hw::load_global(scope, to, static_cast<global_tile<const T>>(from), fill_value, here);
    }
}
template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Element>
IMBREX_KERNEL void store(const Scope& scope, global_tile<Element> to,
                         const hw::fragment<T, Rows, Columns, Warps, Layout>& from, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    if constexpr (detail::same_elements<T, Element>()) hw::store_global(scope, to, from, here);
}

// Rows anywhere in global memory: row_pointer(row) returns the address of a row, a multiple of the size of two elements
// (four for 8-bit elements). If it is null, the row loads as `fill_value` and is not stored.
template <class Scope, class T, int Rows, int Columns, int Warps, class RowPointer>
IMBREX_KERNEL void load_rows_from(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& to,
                                  const RowPointer& row_pointer, T fill_value = T{}, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::gather_rows(scope, to, row_pointer, fill_value, here);
}
template <class Scope, class T, int Rows, int Columns, int Warps, class RowPointer>
IMBREX_KERNEL void store_rows_to(const Scope& scope, const RowPointer& row_pointer,
                                 const hw::fragment<T, Rows, Columns, Warps>& from, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::scatter_rows(scope, row_pointer, from, here);
}

// The registers of a warp to global memory and back, in the fastest order: to hand them to another warp. A tile takes
// the space of its elements, row values that of four times as many; both must be aligned to 16 bytes.
template <class T, int Rows, int Columns>
IMBREX_KERNEL void save(const warp& scope, T* place, const hw::fragment<T, Rows, Columns, 1>& from,
                        source here = source::current()) {
    hw::save_lanes(scope, place, from, here);
}
template <class T, int Rows, int Columns>
IMBREX_KERNEL void restore(const warp& scope, hw::fragment<T, Rows, Columns, 1>& to, const T* place,
                           source here = source::current()) {
    hw::restore_lanes(scope, to, place, here);
}
template <class T, int Rows>
IMBREX_KERNEL void save(const warp& scope, T* place, const hw::row_fragment<T, Rows, 1>& from,
                        source here = source::current()) {
    hw::save_lanes(scope, place, from, here);
}
template <class T, int Rows>
IMBREX_KERNEL void restore(const warp& scope, hw::row_fragment<T, Rows, 1>& to, const T* place,
                           source here = source::current()) {
    hw::restore_lanes(scope, to, place, here);
}

// Fills a rectangle of global memory with one value.
template <class Scope, class T>
IMBREX_KERNEL void fill(const Scope& scope, const global_tile<T>& to, T value, source here = source::current()) {
    hw::fill_global(scope, to, value, here);
}

// Global memory to a shared tile, and back.
template <class Scope, class T, int Rows, int Columns, class Element>
IMBREX_KERNEL void load(const Scope& scope, shared_tile<T, Rows, Columns>& to, global_tile<Element> from,
                        T fill_value = T{}, source here = source::current()) {
    if constexpr (detail::same_elements<T, Element>()) {
        hw::copy_in(scope, to, static_cast<global_tile<const T>>(from), fill_value, here);
    }
}
template <class Scope, class T, int Rows, int Columns, class Element>
IMBREX_KERNEL void store(const Scope& scope, global_tile<Element> to, const shared_tile<T, Rows, Columns>& from,
                         source here = source::current()) {
    if constexpr (detail::same_elements<T, Element>()) hw::copy_out(scope, to, from, here);
}

// Row and column values from and to global memory, of which the first `exist` elements are in bounds.
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL void load(const Scope& scope, hw::row_fragment<T, Rows, Warps>& to, const T* from, int exist,
                        T fill_value = T{}, source here = source::current()) {
    hw::load_rows(scope, to, from, exist, fill_value, here);
}
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL void store(const Scope& scope, T* to, int exist, const hw::row_fragment<T, Rows, Warps>& from,
                         source here = source::current()) {
    hw::store_rows(scope, to, exist, from, here);
}
template <class Scope, class T, int Columns>
IMBREX_KERNEL void load(const Scope& scope, hw::column_fragment<T, Columns>& to, const T* from, int exist,
                        T fill_value = T{}, source here = source::current()) {
    hw::load_columns(scope, to, from, exist, fill_value, here);
}
template <class Scope, class T, int Columns>
IMBREX_KERNEL void store(const Scope& scope, T* to, int exist, const hw::column_fragment<T, Columns>& from,
                         source here = source::current()) {
    hw::store_columns(scope, to, exist, from, here);
}

// Row and column values from and to shared vectors.
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL void load(const Scope& scope, hw::row_fragment<T, Rows, Warps>& to, const shared_vector<T, Rows>& from,
                        source here = source::current()) {
    hw::load_vector(scope, to, from, here);
}
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL void store(const Scope& scope, shared_vector<T, Rows>& to, const hw::row_fragment<T, Rows, Warps>& from,
                         source here = source::current()) {
    hw::store_vector(scope, to, from, here);
}
template <class Scope, class T, int Columns>
IMBREX_KERNEL void load(const Scope& scope, hw::column_fragment<T, Columns>& to, const shared_vector<T, Columns>& from,
                        source here = source::current()) {
    hw::load_vector(scope, to, from, here);
}
template <class Scope, class T, int Columns, class Vector>
IMBREX_KERNEL void load(const Scope& scope, hw::column_fragment<T, Columns>& to,
                        const shared_subvector<Vector, Columns>& from, source here = source::current()) {
    hw::load_vector(scope, to, from, here);
}
template <class Scope, class T, int Columns>
IMBREX_KERNEL void store(const Scope& scope, shared_vector<T, Columns>& to, const hw::column_fragment<T, Columns>& from,
                         source here = source::current()) {
    hw::store_vector(scope, to, from, here);
}

// A shared vector from and to global memory.
template <class Scope, class T, int Length>
IMBREX_KERNEL void load(const Scope& scope, shared_vector<T, Length>& to, const T* from, int exist, T fill_value = T{},
                        source here = source::current()) {
    hw::visit_vector(
        scope, hw::use::write, here, [&](int i, T& element) { element = i < exist ? from[i] : fill_value; }, to);
}
template <class Scope, class T, int Length>
IMBREX_KERNEL void store(const Scope& scope, T* to, int exist, const shared_vector<T, Length>& from,
                         source here = source::current()) {
    hw::visit_vector(
        scope, hw::use::read, here,
        [&](int i, const T& element) {
            if (i < exist) to[i] = element;
        },
        from);
}

}  // namespace imbrex
