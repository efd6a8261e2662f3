// A matrix in shared memory, and a rectangular subtile of one. The storage has the same size in both worlds. On the
// device elements are swizzled (core/swizzled_layout.hpp); in the host world, which has no bank conflicts, they are
// plain rows. Kernels access elements only through operations and do not see the difference.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/swizzled_layout.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/element.hpp>
#else
#include <imbrex/hw/host/element.hpp>
#endif

namespace imbrex {

template <class Tile, int Rows, int Columns>
struct shared_subtile;

template <class T, int Rows, int Columns>
struct shared_tile {
    using element = T;
    using layout = swizzled_tile_layout<T, Rows, Columns>;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int bytes = layout::bytes;

    alignas(layout::alignment) unsigned char storage[bytes];

    // One element: in a checked run of the host world every access to it is checked.
    IMBREX_KERNEL auto at(int row, int column, source here = source::current()) {
        return hw::element_at(*this, row, column, here);
    }
    IMBREX_KERNEL auto at(int row, int column, source here = source::current()) const {
        return hw::element_at(*this, row, column, here);
    }
    // Its address, for the operations of hw/.
    IMBREX_KERNEL T* address(int row, int column) { return reinterpret_cast<T*>(storage + byte_offset(row, column)); }
    IMBREX_KERNEL const T* address(int row, int column) const {
        return reinterpret_cast<const T*>(storage + byte_offset(row, column));
    }

    // The subtile of Rows x Columns elements whose first element is (row, column).
    template <int SubtileRows, int SubtileColumns = Columns>
    IMBREX_KERNEL shared_subtile<shared_tile, SubtileRows, SubtileColumns> subtile(int row, int column = 0) {
        return {this, row, column};
    }
    template <int SubtileRows, int SubtileColumns = Columns>
    IMBREX_KERNEL shared_subtile<const shared_tile, SubtileRows, SubtileColumns> subtile(int row,
                                                                                         int column = 0) const {
        return {this, row, column};
    }

    static constexpr IMBREX_FN int byte_offset(int row, int column) {
        if constexpr (device_world) {
            return layout::byte_offset(row, column);
        } else {
            return (row * Columns + column) * static_cast<int>(sizeof(T));
        }
    }
};

template <class Tile, int Rows, int Columns>
struct shared_subtile {
    static_assert(Rows <= Tile::rows && Columns <= Tile::columns,
                  "imbrex: a subtile must not be larger than its shared tile");
    using element = typename Tile::element;
    using layout = typename Tile::layout;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int bytes = Rows * Columns * static_cast<int>(sizeof(element));

    Tile* tile;
    int first_row;
    int first_column;

    IMBREX_KERNEL auto at(int row, int column, source here = source::current()) const {
        return hw::element_at(*this, row, column, here);
    }
    IMBREX_KERNEL auto* address(int row, int column) const {
        return tile->address(first_row + row, first_column + column);
    }

    template <int SubtileRows, int SubtileColumns = Columns>
    IMBREX_KERNEL shared_subtile<Tile, SubtileRows, SubtileColumns> subtile(int row, int column = 0) const {
        return {tile, first_row + row, first_column + column};
    }
};

template <class Vector, int Count>
struct shared_subvector;

// A vector in shared memory, and a part of one.
template <class T, int Length>
struct shared_vector {
    static_assert(Length > 0, "imbrex: a shared vector's length must be positive");
    using element = T;
    static constexpr int length = Length;
    static constexpr int bytes = Length * static_cast<int>(sizeof(T));

    alignas(128) T storage[Length];

    IMBREX_KERNEL auto at(int index, source here = source::current()) { return hw::element_at(*this, index, here); }
    IMBREX_KERNEL auto at(int index, source here = source::current()) const {
        return hw::element_at(*this, index, here);
    }
    IMBREX_KERNEL T* address(int index) { return storage + index; }
    IMBREX_KERNEL const T* address(int index) const { return storage + index; }

    // Count elements from this one on.
    template <int Count>
    IMBREX_KERNEL shared_subvector<const shared_vector, Count> subtile(int first) const {
        return {this, first};
    }
};

template <class Vector, int Count>
struct shared_subvector {
    static_assert(Count <= Vector::length, "imbrex: a subvector must not be longer than its shared vector");
    using element = typename Vector::element;
    static constexpr int length = Count;
    static constexpr int bytes = Count * static_cast<int>(sizeof(element));

    Vector* vector;
    int first;

    IMBREX_KERNEL auto at(int index, source here = source::current()) const {
        return hw::element_at(*this, index, here);
    }
    IMBREX_KERNEL auto* address(int index) const { return vector->address(first + index); }
};

}  // namespace imbrex
