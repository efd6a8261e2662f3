// Fragments in the host world: the whole matrix of a register tile, stored by the one simulated warp that stands for
// all lanes. In checked mode a fragment also records whether it was written and whether an asynchronous mma uses it.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace imbrex::hw {

// The checker's state of one fragment.
struct fragment_state {
    bool written = false;
    int mma_writes = 0;  // asynchronous mmas in flight that accumulate into it
    int mma_reads = 0;   // and that read it
    source mma_at{};
};

// Uninitialised storage, as on the device. In checked mode it is poisoned.
template <class T, int Count>
struct fragment_storage {
    alignas(64) T values[Count];
    mutable fragment_state state;

    fragment_storage() {
        if (machine::running() != nullptr && machine::running()->checked) std::memset(values, 0xff, sizeof values);
    }
    fragment_storage(const fragment_storage& other) { *this = other; }
    fragment_storage& operator=(const fragment_storage& other) {
        other.refuse_in_flight(other.state.mma_writes, "copy of the tile");
        refuse_in_flight(state.mma_writes + state.mma_reads, "assignment to the tile");
        if (this != &other) std::memcpy(values, other.values, sizeof values);
        // A copy is in other registers, which no mma uses.
        state = {other.state.written, 0, 0, {}};
        return *this;
    }

    ~fragment_storage() noexcept(false) {
        if (state.mma_writes + state.mma_reads == 0) return;
        machine* on = machine::running();
        simulated_warp* by = machine::running_simulated_warp();
        if (on == nullptr || by == nullptr || on->stopping()) return;
        // The registers end with the tile, for whatever reason: complete the mmas that use them.
        on->finish(&by->mmas, by->mmas.open_tick());
        std::erase_if(by->lent, [this](const lent_register_tile& one) {
            return one.uses == &state.mma_writes || one.uses == &state.mma_reads;
        });
        refuse_in_flight(state.mma_writes + state.mma_reads, "end of the tile");
    }

  private:
    void refuse_in_flight(int uses, const char* what) const {
        machine* on = machine::running();
        simulated_warp* by = machine::running_simulated_warp();
        if (uses == 0 || on == nullptr || by == nullptr || on->stopping() || on->unwinding()) return;
        on->report(hazard_kind::accumulator_in_flight, *by->block, "an asynchronous mma is using the register tile",
                   {{by->name(), what, "", 0}, {by->name(), "mma", state.mma_at.file, state.mma_at.line}});
    }
};

template <class T, int Rows, int Columns, int Warps, register_layout Layout = register_layout::row_major>
struct fragment : fragment_storage<T, Rows * Columns> {
    static constexpr int held_rows = Layout == register_layout::row_major ? Rows : Columns;
    static constexpr int held_columns = Layout == register_layout::row_major ? Columns : Rows;
    static_assert(held_rows % (16 * Warps) == 0,
                  "imbrex: a register tile needs 16 rows for each warp of its scope (16 columns, if column-major)");
    static_assert(held_columns % (sizeof(T) == 1 ? 16 : 8) == 0,
                  "imbrex: a register tile's columns must be a multiple of 8, or 16 for 8-bit elements");
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int warps = Warps;
    static constexpr register_layout held = Layout;

    T& at(int row, int column) { return this->values[row * Columns + column]; }
    const T& at(int row, int column) const { return this->values[row * Columns + column]; }
};

// Relabels a column-major tile as its row-major transpose, or the reverse. On the device these are the same registers.
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
auto transposed(const fragment<T, Rows, Columns, Warps, Layout>& tile) {
    fragment<T, Columns, Rows, Warps,
             Layout == register_layout::row_major ? register_layout::column_major : register_layout::row_major>
        result;
    result.state = tile.state;
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; ++column) result.at(column, row) = tile.at(row, column);
    }
    return result;
}

template <class T, int Rows, int Warps>
struct row_fragment : fragment_storage<T, Rows> {
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int warps = Warps;
};

template <class T, int Columns>
struct column_fragment : fragment_storage<T, Columns> {
    using element = T;
    static constexpr int columns = Columns;
};

enum class use { read, write, update };

// Checks one access of an ordinary operation to a fragment.
template <class Fragment>
void touch_fragment(const context& c, const Fragment& one, use how, const char* what, source where) {
    if (!c.checked()) return;
    fragment_state& state = one.state;
    const auto now = [&] { return hazard_location{c.by->name(), what, where.file, where.line}; };
    if (state.mma_writes > 0 || (state.mma_reads > 0 && how != use::read)) {
        c.on->report(hazard_kind::accumulator_in_flight, *c.by->block, "an asynchronous mma is using the register tile",
                     {now(), {c.by->name(), "mma", state.mma_at.file, state.mma_at.line}});
    }
    if (how != use::write && !state.written) {
        c.on->report(hazard_kind::uninitialised_read, *c.by->block, "the register tile or vector was never written",
                     {now()});
    }
    if (how != use::read) state.written = true;
}

// Records an elementwise operation on registers in the trace.
inline void spend_lanes(const context& c, double elements, const char* what) {
    if (!c || !c.on->trace.enabled()) return;
    const double begin = c.by->time;
    c.by->time += elements / (c.by->warps * 32) / nominal_rates::lane_operations;
    c.on->trace.record(c.by->block->number, c.by->name(), what, begin, c.by->time);
}

template <class Fragment>
inline constexpr use use_of = std::is_const_v<Fragment> ? use::read : use::update;

// The value of a tile, row or column fragment at element (row, column).
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
T& value_at(fragment<T, Rows, Columns, Warps, Layout>& one, int row, int column) {
    return one.values[row * Columns + column];
}
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
const T& value_at(const fragment<T, Rows, Columns, Warps, Layout>& one, int row, int column) {
    return one.values[row * Columns + column];
}
template <class T, int Rows, int Warps>
T& value_at(row_fragment<T, Rows, Warps>& one, int row, int) {
    return one.values[row];
}
template <class T, int Rows, int Warps>
const T& value_at(const row_fragment<T, Rows, Warps>& one, int row, int) {
    return one.values[row];
}
template <class T, int Columns>
T& value_at(column_fragment<T, Columns>& one, int, int column) {
    return one.values[column];
}
template <class T, int Columns>
const T& value_at(const column_fragment<T, Columns>& one, int, int column) {
    return one.values[column];
}

// Calls f(row, column, value, other values...) for every element of the first fragment, which is write-only unless the
// caller marks it as updated.
template <class Scope, class F, class First, class... Others>
void visit(const Scope& scope, use first_use, source here, F f, First& first, Others&... others) {
    const context c = enter_registers(scope, "elementwise operation", here);
    if (!c) return;
    (touch_fragment(c, others, use_of<Others>, "elementwise operation", here), ...);
    touch_fragment(c, first, first_use, "elementwise operation", here);
    for (int row = 0; row < First::rows; ++row) {
        for (int column = 0; column < First::columns; ++column) {
            f(row, column, value_at(first, row, column), value_at(others, row, column)...);
        }
    }
    spend_lanes(c, First::rows * First::columns, "elementwise");
}

// Calls f(value, next value in its row, column vector's value of the first) for every two neighbours, the first in an
// even column.
template <class Scope, class F, class T, int Rows, int Columns, int Warps, class V>
void visit_neighbours(const Scope& scope, source here, F f, fragment<T, Rows, Columns, Warps>& tile,
                      const column_fragment<V, Columns>& vector) {
    const context c = enter_registers(scope, "operation on neighbours", here);
    if (!c) return;
    touch_fragment(c, vector, use::read, "operation on neighbours", here);
    touch_fragment(c, tile, use::update, "operation on neighbours", here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; column += 2) {
            f(tile.at(row, column), tile.at(row, column + 1), vector.values[column]);
        }
    }
    spend_lanes(c, Rows * Columns, "elementwise");
}

template <class Scope, class F, class First, class... Others>
void visit_rows(const Scope& scope, use first_use, source here, F f, First& first, Others&... others) {
    const context c = enter_registers(scope, "operation on row values", here);
    if (!c) return;
    (touch_fragment(c, others, use_of<Others>, "operation on row values", here), ...);
    touch_fragment(c, first, first_use, "operation on row values", here);
    for (int row = 0; row < First::rows; ++row) f(row, first.values[row], others.values[row]...);
}

// Sets elements outside the column range of their row, range(row).first up to range(row).end, to `masked`.
template <class Scope, class T, int Rows, int Columns, int Warps, class Range>
void keep_columns(const Scope& scope, fragment<T, Rows, Columns, Warps>& tile, const Range& range, T masked,
                  source here) {
    const context c = enter_registers(scope, "elementwise operation", here);
    if (!c) return;
    touch_fragment(c, tile, use::update, "elementwise operation", here);
    for (int row = 0; row < Rows; ++row) {
        const auto columns = range(row);
        const int first = std::clamp(columns.first, 0, Columns), end = std::clamp(columns.end, first, Columns);
        std::fill(&tile.at(row, 0), &tile.at(row, 0) + first, masked);
        std::fill(&tile.at(row, 0) + end, &tile.at(row, 0) + Columns, masked);
    }
    spend_lanes(c, Rows * Columns, "elementwise");
}

// Runs the body if any row satisfies the predicate. On the device each warp tests its own rows, so only some warps may
// run it.
template <class Scope, class T, int Rows, int Warps, class F, class Body>
void if_any_row(const Scope& scope, const row_fragment<T, Rows, Warps>& rows, F f, Body body, source here) {
    bool found = false;
    visit_rows(
        scope, use::read, here, [&](int, const T& value) { found = found || f(value); }, rows);
    if (!found) return;
    constexpr int deeper = Scope::warps > 1 ? 1 : 0;
    scope.self->divergence += deeper;
    body();
    scope.self->divergence -= deeper;
}

template <class Scope, class F, class First, class... Others>
void visit_columns(const Scope& scope, use first_use, source here, F f, First& first, Others&... others) {
    const context c = enter_registers(scope, "operation on column values", here);
    if (!c) return;
    (touch_fragment(c, others, use_of<Others>, "operation on column values", here), ...);
    touch_fragment(c, first, first_use, "operation on column values", here);
    for (int column = 0; column < First::columns; ++column) f(column, first.values[column], others.values[column]...);
}

template <class Scope, class To, class From, int Rows, int Columns, int Warps, register_layout Layout>
void convert_fragment(const Scope& scope, fragment<To, Rows, Columns, Warps, Layout>& to,
                      const fragment<From, Rows, Columns, Warps, Layout>& from, source here) {
    const context c = enter_registers(scope, "conversion", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "conversion", here);
    touch_fragment(c, to, use::write, "conversion", here);
    for (int i = 0; i < Rows * Columns; ++i) to.values[i] = convert<To>(from.values[i]);
    spend_lanes(c, Rows * Columns, "conversion");
}

// Columns First to First + Count - 1 of a tile.
template <int First, int Count, class Scope, class T, int Rows, int Columns, int Warps>
fragment<T, Rows, Count, Warps> columns_of(const Scope& scope, const fragment<T, Rows, Columns, Warps>& tile,
                                           source here) {
    fragment<T, Rows, Count, Warps> part;
    const context c = enter_registers(scope, "columns of a tile", here);
    if (!c) return part;
    touch_fragment(c, tile, use::read, "columns of a tile", here);
    touch_fragment(c, part, use::write, "columns of a tile", here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Count; ++column) part.at(row, column) = tile.at(row, First + column);
    }
    return part;
}

// Calls f(element, element of `part`, row value) for the columns of a tile from First on that `part` has.
template <int First, class Scope, class F, class T, class U, class V, int Rows, int Columns, int Count, int Warps>
void visit_columns_of(const Scope& scope, source here, F f, fragment<T, Rows, Columns, Warps>& tile,
                      const fragment<U, Rows, Count, Warps>& part, const row_fragment<V, Rows, Warps>& values) {
    const context c = enter_registers(scope, "elementwise operation", here);
    if (!c) return;
    touch_fragment(c, part, use::read, "elementwise operation", here);
    touch_fragment(c, values, use::read, "elementwise operation", here);
    touch_fragment(c, tile, use::update, "elementwise operation", here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Count; ++column) {
            f(tile.at(row, First + column), part.at(row, column), values.values[row]);
        }
    }
    spend_lanes(c, Rows * Count, "elementwise");
}

// A range of a vector's values.
template <int First, int Count, class Scope, class T, int Rows, int Warps>
row_fragment<T, Count, Warps> rows_of(const Scope& scope, const row_fragment<T, Rows, Warps>& values, source here) {
    row_fragment<T, Count, Warps> part;
    const context c = enter_registers(scope, "rows of a vector", here);
    if (!c) return part;
    touch_fragment(c, values, use::read, "rows of a vector", here);
    touch_fragment(c, part, use::write, "rows of a vector", here);
    std::copy(values.values + First, values.values + First + Count, part.values);
    return part;
}

// One column of a tile.
template <class Scope, class T, int Rows, int Warps>
row_fragment<T, Rows, Warps> column_of(const Scope& scope, const fragment<T, Rows, 8, Warps>& tile, int column,
                                       source here) {
    row_fragment<T, Rows, Warps> result;
    const context c = enter_registers(scope, "column of a tile", here);
    if (!c) return result;
    touch_fragment(c, tile, use::read, "column of a tile", here);
    touch_fragment(c, result, use::write, "column of a tile", here);
    for (int row = 0; row < Rows; ++row) result.values[row] = tile.at(row, column);
    return result;
}

// Folds each row of a tile into one value. On the device `fold` covers the elements of a lane and `combine` the lanes
// of a row; here the fold covers everything, and combine only checks.
template <class Scope, class T, int Rows, int Warps, class Tile, class Op>
void fold_rows(const Scope& scope, row_fragment<T, Rows, Warps>& into, const Tile& tile, Op op, source here) {
    const context c = enter_registers(scope, "row reduction", here);
    if (!c) return;
    touch_fragment(c, tile, use::read, "row reduction", here);
    touch_fragment(c, into, use::update, "row reduction", here);
    for (int row = 0; row < Rows; ++row) {
        T value = into.values[row];
        for (int column = 0; column < Tile::columns; ++column) value = op(value, tile.at(row, column));
        into.values[row] = value;
    }
    spend_lanes(c, Rows * Tile::columns, "row reduction");
}
template <class Scope, class T, int Rows, int Warps, class Op>
void combine_rows(const Scope& scope, row_fragment<T, Rows, Warps>& values, Op, source here) {
    touch_fragment(enter_registers(scope, "row reduction", here), values, use::update, "row reduction", here);
}

template <class Scope, class T, int Columns, class Tile, class Op>
void fold_columns(const Scope& scope, column_fragment<T, Columns>& into, const Tile& tile, Op op, source here) {
    const context c = enter_registers(scope, "column reduction", here);
    if (!c) return;
    touch_fragment(c, tile, use::read, "column reduction", here);
    touch_fragment(c, into, use::update, "column reduction", here);
    for (int row = 0; row < Tile::rows; ++row) {
        for (int column = 0; column < Columns; ++column) {
            into.values[column] = op(into.values[column], tile.at(row, column));
        }
    }
    spend_lanes(c, Columns * Tile::rows, "column reduction");
}
template <class Scope, class T, int Columns, class Op>
void combine_columns(const Scope& scope, column_fragment<T, Columns>& values, Op, source here) {
    touch_fragment(enter_registers(scope, "column reduction", here), values, use::update, "column reduction", here);
}

}  // namespace imbrex::hw
