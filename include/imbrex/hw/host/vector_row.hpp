// Vectorised rows in the host world: a plain matrix, and a plain array for each vector.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <iterator>

namespace imbrex::hw {

template <class T, int Rows, int Columns>
struct vector_row_fragment : fragment_storage<T, Rows * Columns> {
    static_assert(Columns % 8 == 0 && (Columns % 256 == 0 || 256 % Columns == 0),
                  "imbrex: vectorised rows have 8, 16, 32, 64, 128 or a multiple of 256 columns");
    static_assert(Rows * Columns % 256 == 0, "imbrex: a vectorised row tile must have chunks for all lanes");
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
};

template <class T, int Rows, int Columns>
struct vector_row_values_fragment : fragment_storage<T, Rows> {};

template <class T, int Columns>
struct vector_row_column_fragment : fragment_storage<T, Columns> {};

template <class T, int Rows, int Columns>
float vector_row_value(const vector_row_fragment<T, Rows, Columns>& from, int row, int column) {
    return convert<float>(from.values[row * Columns + column]);
}
template <class T, int Rows, int Columns>
float vector_row_value(const vector_row_values_fragment<T, Rows, Columns>& from, int row, int) {
    return convert<float>(from.values[row]);
}
template <class T, int Columns>
float vector_row_value(const vector_row_column_fragment<T, Columns>& from, int, int column) {
    return convert<float>(from.values[column]);
}

// On the device, `Whole` rows are moved 16 bytes at a time.
template <bool Whole, class T, int Rows, int Columns, class RowPointer>
void load_vector_rows(const warp& scope, vector_row_fragment<T, Rows, Columns>& to, RowPointer&& row_pointer,
                      int columns, source here) {
    const context c = enter(scope, "load of vectorised rows", here);
    if (!c) return;
    touch_fragment(c, to, use::write, "load of vectorised rows", here);
    const int there = std::clamp(columns, 0, Columns);
    for (int row = 0; row < Rows; ++row) {
        T* const target = to.values + row * Columns;
        const T* const from = row_pointer(row);
        const int copied = from == nullptr ? 0 : there;
        touch_global_row(c, from, copied, global_use::read, row, "load of vectorised rows", here);
        std::copy(from, from + copied, target);
        std::fill(target + copied, target + Columns, convert<T>(0.0f));
    }
    spend_lanes(c, Rows * Columns, "load");
}
template <bool Whole, class T, int Columns>
void load_vector_row_columns(const warp& scope, vector_row_column_fragment<T, Columns>& to, const T* from, int columns,
                             source here) {
    const context c = enter(scope, "load of a vector", here);
    if (!c) return;
    touch_fragment(c, to, use::write, "load of a vector", here);
    const int there = std::clamp(columns, 0, Columns);
    touch_global_values(c, from, there, global_use::read, 0, "load of a vector", here);
    std::copy(from, from + there, to.values);
    std::fill(to.values + there, to.values + Columns, convert<T>(0.0f));
    spend_lanes(c, Columns, "load");
}

template <bool Whole, class T, int Rows, int Columns, class RowPointer>
void store_vector_rows(const warp& scope, RowPointer&& row_pointer, const vector_row_fragment<T, Rows, Columns>& from,
                       int columns, source here) {
    const context c = enter(scope, "store of vectorised rows", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "store of vectorised rows", here);
    const int there = std::clamp(columns, 0, Columns);
    for (int row = 0; row < Rows; ++row) {
        T* const to = row_pointer(row);
        if (to != nullptr) touch_global_row(c, to, there, global_use::write, row, "store of vectorised rows", here);
        if (to != nullptr) std::copy_n(from.values + row * Columns, there, to);
    }
    spend_lanes(c, Rows * Columns, "store");
}

// Chunks of eight columns at chunk_pointer(row, first column), null if there is none.
template <class T, int Rows, int Columns, class ChunkPointer>
void load_vector_chunks(const warp& scope, vector_row_fragment<T, Rows, Columns>& to, ChunkPointer&& chunk_pointer,
                        source here) {
    const context c = enter(scope, "load of vectorised rows", here);
    if (!c) return;
    touch_fragment(c, to, use::write, "load of vectorised rows", here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; column += 8) {
            T* const target = to.values + row * Columns + column;
            const T* const from = chunk_pointer(row, column);
            if (from == nullptr) {
                std::fill_n(target, 8, convert<T>(0.0f));
                continue;
            }
            touch_global_row(c, from, 8, global_use::read, row, "load of vectorised rows", here);
            std::copy_n(from, 8, target);
        }
    }
    spend_lanes(c, Rows * Columns, "load");
}
template <class T, int Rows, int Columns, class ChunkPointer>
void store_vector_chunks(const warp& scope, ChunkPointer&& chunk_pointer,
                         const vector_row_fragment<T, Rows, Columns>& from, source here) {
    const context c = enter(scope, "store of vectorised rows", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "store of vectorised rows", here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; column += 8) {
            T* const to = chunk_pointer(row, column);
            if (to == nullptr) continue;
            touch_global_row(c, to, 8, global_use::write, row, "store of vectorised rows", here);
            std::copy_n(from.values + row * Columns + column, 8, to);
        }
    }
    spend_lanes(c, Rows * Columns, "store");
}

template <class F, class T, int Rows, int Columns, class... From>
void transform_vector_rows(const warp& scope, vector_row_fragment<T, Rows, Columns>& to, F&& f, source here,
                           const From&... from) {
    const context c = enter_registers(scope, "elementwise operation", here);
    if (!c) return;
    (touch_fragment(c, from, use::read, "elementwise operation", here), ...);
    touch_fragment(c, to, use::write, "elementwise operation", here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; ++column) {
            to.values[row * Columns + column] = convert<T>(f(vector_row_value(from, row, column)...));
        }
    }
    spend_lanes(c, Rows * Columns, "elementwise");
}
template <class F, int Rows, int Columns>
void transform_vector_row_values(const warp& scope, vector_row_values_fragment<float, Rows, Columns>& values, F&& f,
                                 source here) {
    const context c = enter_registers(scope, "operation on row values", here);
    if (!c) return;
    touch_fragment(c, values, use::update, "operation on row values", here);
    for (float& value : values.values) value = f(value);
}
template <int Rows, int Columns>
void fill_vector_row_values(const warp& scope, vector_row_values_fragment<float, Rows, Columns>& values, float value,
                            source here) {
    const context c = enter_registers(scope, "operation on row values", here);
    if (!c) return;
    touch_fragment(c, values, use::write, "operation on row values", here);
    std::fill(std::begin(values.values), std::end(values.values), value);
}

template <class T, int Columns>
void fill_vector_row_columns(const warp& scope, vector_row_column_fragment<T, Columns>& values, T value, source here) {
    const context c = enter_registers(scope, "operation on column values", here);
    if (!c) return;
    touch_fragment(c, values, use::write, "operation on column values", here);
    std::fill(std::begin(values.values), std::end(values.values), value);
}

template <class F, class T, int Rows, int Columns>
void fold_vector_rows(const warp& scope, vector_row_values_fragment<float, Rows, Columns>& into,
                      const vector_row_fragment<T, Rows, Columns>& from, F&& f, source here) {
    const context c = enter_registers(scope, "row reduction", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "row reduction", here);
    touch_fragment(c, into, use::update, "row reduction", here);
    for (int row = 0; row < Rows; ++row) {
        float& value = into.values[row];
        for (int column = 0; column < Columns; ++column) value = f(value, vector_row_value(from, row, column));
    }
    spend_lanes(c, Rows * Columns, "elementwise");
}
// Over the first `columns` columns, with another value of the row.
template <bool Whole, class F, class T, int Rows, int Columns>
void fold_vector_row_columns(const warp& scope, vector_row_values_fragment<float, Rows, Columns>& into,
                             const vector_row_fragment<T, Rows, Columns>& from, F&& f,
                             const vector_row_values_fragment<float, Rows, Columns>& others, int columns, source here) {
    const context c = enter_registers(scope, "row reduction", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "row reduction", here);
    touch_fragment(c, others, use::read, "row reduction", here);
    touch_fragment(c, into, use::update, "row reduction", here);
    const int there = std::clamp(columns, 0, Columns);
    for (int row = 0; row < Rows; ++row) {
        float& value = into.values[row];
        for (int column = 0; column < there; ++column) {
            value = f(value, vector_row_value(from, row, column), others.values[row]);
        }
    }
    spend_lanes(c, Rows * Columns, "elementwise");
}
// In the host world the fold covers all elements.
template <class Op, int Rows, int Columns>
void combine_vector_row_values(const warp& scope, vector_row_values_fragment<float, Rows, Columns>& values, Op,
                               source here) {
    const context c = enter(scope, "row reduction", here);
    if (c) touch_fragment(c, values, use::update, "row reduction", here);
}

template <class T, int Columns>
T only_row_value(const warp& scope, const vector_row_values_fragment<T, 1, Columns>& values, source here) {
    const context c = enter_registers(scope, "read of a row value", here);
    if (!c) return T{};
    touch_fragment(c, values, use::read, "read of a row value", here);
    return values.values[0];
}

}  // namespace imbrex::hw
