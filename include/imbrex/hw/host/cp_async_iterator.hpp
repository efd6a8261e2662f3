// cp.async iterators in the host world: each copy is an ordinary checked asynchronous copy from its own address.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <array>
#include <cstdint>

namespace imbrex::hw {

// Objects at byte distances from a first one.
template <class T>
struct cp_async_object_iterator {
    const T* first;

    cp_async_object_iterator(const warp&, const T& first) : first(&first) {}
    template <class Other>
    cp_async_object_iterator(const cp_async_object_iterator<Other>& other, int behind)
        : first(reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(other.first) + behind)) {}

    void copy_async(const warp& scope, T& to, std::int64_t distance, int near, source here) const {
        const unsigned char* const from = reinterpret_cast<const unsigned char*>(first) + distance + near;
        hw::copy_object_async(scope, to, *reinterpret_cast<const T*>(from), here);
    }
};

// 8 or 16 rows as the B operand of a product.
template <int Rows, class T, int Columns, class Tile>
void load_operand_rows(const warp& scope, fragment<T, 16, Columns, 1>& to, const Tile& tile, source here) {
    if constexpr (Rows == 8) {
        hw::load_eight_rows(scope, to, tile, here);
    } else {
        hw::load_operand<mma_operand::b>(scope, to, tile, here);
    }
}

// Rectangles side by side in the rows of a matrix.
template <class T, int Rows, int Columns, bool>
struct cp_async_row_iterator {
    global_tile<const T> from;

    cp_async_row_iterator(const warp&, const global_tile<const T>& from) : from(from) {}

    template <class Tile>
    void copy_async(const warp& scope, Tile& to, int column, source here) const {
        auto place = to.template subtile<Rows, Columns>(0);
        hw::copy_aligned_async(scope, place, from.from(0, column), here);
    }
    template <class Tile>
    void load(const warp& scope, fragment<T, 16, Columns, 1>& to, const Tile& tile, source here) const {
        load_operand_rows<Rows>(scope, to, tile, here);
    }
};

// Rows anywhere in global memory, of which rectangles side by side are copied.
template <class T, int Rows, int Columns>
struct cp_async_gather_iterator {
    std::array<const T*, Rows> rows;
    int columns;

    template <class RowPointer>
    cp_async_gather_iterator(const warp&, const RowPointer& row_pointer, int columns) : columns(columns) {
        for (int row = 0; row < Rows; ++row) rows[row] = row_pointer(row);
    }

    template <class Shared>
    void copy_async(const warp& scope, const Shared& to, int column, source here) const {
        const auto row_at = [rows = rows, column, left = columns - column](int row) {
            const bool exists = rows[row] != nullptr && left > 0;
            return global_tile<const T>{exists ? rows[row] + column : nullptr, 0, exists ? 1 : 0, left};
        };
        hw::copy_in_async_from(
            scope, to,
            [&](const context& c, const access& made) {
                for (int row = 0; row < Rows; ++row) touch_global(c, row_at(row), 1, Columns, made, global_use::read);
            },
            [row_at](const auto& place) {
                for (int row = 0; row < Rows; ++row) {
                    copy_rows_in(place.template subtile<1, Columns>(row, 0), row_at(row), T{});
                }
            },
            here);
    }

    template <class Tile>
    void load(const warp& scope, fragment<T, 16, Columns, 1>& to, const Tile& tile, source here) const {
        load_operand_rows<Rows>(scope, to, tile, here);
    }
};

}  // namespace imbrex::hw
