// A rectangle of global memory: pointer, row stride and the number of rows and columns in bounds. A tile may extend
// past the edge of its matrix: loads fill the out-of-bounds part, stores skip it.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class T>
struct global_tile {
    using element = T;

    T* pointer = nullptr;
    std::int64_t row_stride = 0;  // in elements
    int rows = 0;                 // in bounds from here on; none if not positive
    int columns = 0;

    // `rows` of a rectangle that begins before its matrix: the host world reports its use.
    static constexpr int before_matrix = -2147483647;

    IMBREX_FN T* at(int row, int column) const { return pointer + row * row_stride + column; }
    IMBREX_FN bool has(int row, int column) const { return row < rows && column < columns; }
    // Whether its rows begin and end at multiples of 16 bytes.
    IMBREX_FN bool is_16_byte_aligned() const {
        const auto row_bytes = static_cast<std::uintptr_t>(columns) * sizeof(T);
        const auto distance = static_cast<std::uintptr_t>(row_stride) * sizeof(T);
        return (reinterpret_cast<std::uintptr_t>(pointer) | distance | row_bytes) % 16 == 0;
    }
    // The rectangle that begins at another of its elements.
    IMBREX_FN global_tile from(int row, int column) const {
        return {at(row, column), row_stride, rows - row, columns - column};
    }

    // A writable tile converts to a read-only one.
    template <class Constant>
    requires(!std::is_const_v<T> && std::is_same_v<Constant, const T>) IMBREX_FN operator global_tile<Constant>()
        const {
        return {pointer, row_stride, rows, columns};
    }
};

}  // namespace imbrex
