// A tensor in global memory: a pointer, extents and strides, each known at compile time or at run time. The last two
// dimensions are rows and columns, the others are batches. Kernels take rectangles from a view: `tile<Tile>(i, j)`
// counts in tiles, `at(row, column)` in elements. A rectangle may extend past the edge; it knows its in-bounds size.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

// An extent or stride given at run time.
inline constexpr std::int64_t dynamic = -1;

// A list of numbers, some of them compile-time constants.
template <std::int64_t... Fixed>
struct dimensions {
    static constexpr int rank = sizeof...(Fixed);
    static constexpr int unknown = (0 + ... + (Fixed == dynamic ? 1 : 0));

    std::int64_t given[unknown == 0 ? 1 : unknown] = {};

    constexpr dimensions() = default;

    // Takes all the numbers, or only those that are not known at compile time.
    template <class... Numbers>
    requires(sizeof...(Numbers) == rank ||
             (sizeof...(Numbers) == unknown && unknown > 0)) constexpr IMBREX_FN dimensions(Numbers... numbers) {
        const std::int64_t all[] = {static_cast<std::int64_t>(numbers)...};
        const std::int64_t fixed[] = {Fixed...};
        int next = 0;
        for (int i = 0; i < rank; ++i) {
            if (fixed[i] == dynamic) {
                given[next] = sizeof...(Numbers) == rank ? all[i] : all[next];
                ++next;
            }
        }
    }

    constexpr IMBREX_FN std::int64_t operator[](int which) const {
        const std::int64_t fixed[] = {Fixed...};
        int next = 0;
        for (int i = 0; i < which; ++i) next += fixed[i] == dynamic ? 1 : 0;
        return fixed[which] == dynamic ? given[next] : fixed[which];
    }
};

template <class T, class Extents, class Strides>
struct global_view {
    using element = T;
    static constexpr int rank = Extents::rank;
    static_assert(rank >= 2 && Strides::rank == rank,
                  "imbrex: a view needs rows and columns, and a stride for each extent");

    T* pointer = nullptr;
    Extents extents;
    Strides strides;  // in elements; the stride of the columns must be 1

    IMBREX_FN int rows() const { return static_cast<int>(extents[rank - 2]); }
    IMBREX_FN int columns() const { return static_cast<int>(extents[rank - 1]); }

    // The rectangle that begins at this element: batches first, then row and column.
    template <class... Indices>
    IMBREX_FN global_tile<T> at(Indices... indices) const {
        static_assert(sizeof...(Indices) == rank,
                      "imbrex: a view is addressed by as many indices as it has dimensions");
        const std::int64_t index[] = {static_cast<std::int64_t>(indices)...};
        return rectangle(index);
    }

    // The same, with row and column counted in tiles.
    template <class Tile, class... Indices>
    IMBREX_FN global_tile<T> tile(Indices... indices) const {
        static_assert(sizeof...(Indices) == rank,
                      "imbrex: a view is addressed by as many indices as it has dimensions");
        std::int64_t index[] = {static_cast<std::int64_t>(indices)...};
        index[rank - 2] *= Tile::rows;
        index[rank - 1] *= Tile::columns;
        return rectangle(index);
    }

    // A writable view converts to a read-only one.
    template <class Constant>
    requires(!std::is_const_v<T> && std::is_same_v<Constant, const T>) IMBREX_FN
    operator global_view<Constant, Extents, Strides>() const {
        return {pointer, extents, strides};
    }

  private:
    // A rectangle before the matrix is an error in the host world and in debug builds for the device.
#if IMBREX_DEVICE_WORLD && defined(NDEBUG)
    static constexpr bool checks_bounds = false;
#else
    static constexpr bool checks_bounds = true;
#endif
    IMBREX_FN global_tile<T> before_matrix() const {
#if IMBREX_DEVICE_WORLD
        __trap();
#endif
        return {pointer, 0, global_tile<T>::before_matrix, 0};
    }

    IMBREX_FN global_tile<T> rectangle(const std::int64_t (&index)[rank]) const {
        std::int64_t offset = 0;
        for (int i = 0; i < rank; ++i) offset += index[i] * strides[i];
        if (checks_bounds) {
            for (int i = 0; i < rank; ++i) {
                if (index[i] < 0) return before_matrix();
            }
        }
        return {pointer + offset, strides[rank - 2], static_cast<int>(extents[rank - 2] - index[rank - 2]),
                static_cast<int>(extents[rank - 1] - index[rank - 1])};
    }
};

template <class T>
using matrix_view = global_view<T, dimensions<dynamic, dynamic>, dimensions<dynamic, 1>>;

// A matrix whose rows are `row_stride` elements apart; contiguous if it is not given.
template <class T>
IMBREX_FN matrix_view<T> matrix(T* pointer, std::int64_t rows, std::int64_t columns, std::int64_t row_stride = 0) {
    return {pointer, {rows, columns}, {row_stride == 0 ? columns : row_stride}};
}

}  // namespace imbrex
