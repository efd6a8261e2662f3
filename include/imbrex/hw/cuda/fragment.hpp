// A fragment: the part of a register tile that each thread of a scope holds. All matrix instructions (mma.sync, wgmma,
// ldmatrix) distribute a block of 16 rows over a warp in one way. Fragments use it for all element types and sizes, so
// the result of one instruction is the operand of the next.
//
//   A block of 16 rows x 8 columns (g = lane / 4, t = lane % 4):
//
//              columns 2t, 2t+1                          Of 8-bit elements a block has 16 columns
//     row g    values[..][..][0], values[..][..][1]      and a lane holds four in a row: values 0 to 3 in row g,
//     row g+8  values[..][..][2], values[..][..][3]      4 to 7 in row g+8, in columns 4t to 4t+3.
//
// This is the layout of an accumulator and, with two blocks side by side, of a 16-bit operand. Row block b of warp w
// starts at row 16 * (b * Warps + w), so a warpgroup's 64 rows match wgmma. A column-major fragment is stored as its
// transpose in row-major layout.
//
// Every index into the arrays must be a compile-time constant: a run-time index would move them to local memory.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

template <class T, int Rows, int Columns, int Warps, register_layout Layout = register_layout::row_major>
struct fragment {
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int warps = Warps;
    static constexpr register_layout held = Layout;

    // The shape of the stored matrix: this tile or its transpose.
    static constexpr int stored_rows = Layout == register_layout::row_major ? Rows : Columns;
    static constexpr int stored_columns = Layout == register_layout::row_major ? Columns : Rows;
    static constexpr int strip_columns = sizeof(T) == 1 ? 16 : 8;
    static_assert(
        stored_rows > 0 && stored_rows % (16 * Warps) == 0,
        "imbrex: a register tile's rows (its columns, if column-major) must be a multiple of 16 for each warp "
        "of its scope");
    static_assert(stored_columns > 0 && stored_columns % strip_columns == 0,
                  "imbrex: a register tile's columns (its rows, if column-major) must be a multiple of 8, of 16 for "
                  "8-bit elements");

    static constexpr int blocks = stored_rows / 16 / Warps;
    static constexpr int strips = stored_columns / strip_columns;
    // Neighbouring values in a row of a strip; a lane has two such rows.
    static constexpr int run = strip_columns / 4;
    static constexpr int run_bytes = run * static_cast<int>(sizeof(T));
    static constexpr int each = 2 * run;

    alignas(sizeof(T) < 4 ? 4 : sizeof(T)) T values[blocks][strips][each];

    // The registers of both rows of a strip in the order of a matrix instruction.
    IMBREX_KERNEL std::uint32_t word_at(int block, int strip, int half) const {
        static_assert(run_bytes == 4, "imbrex: only 8- and 16-bit elements are operands of matrix instructions");
        return read_as<std::uint32_t>(&values[block][strip][half * run]);
    }
    IMBREX_KERNEL void set_word(int block, int strip, int half, std::uint32_t word) {
        static_assert(run_bytes == 4, "imbrex: only 8- and 16-bit elements are operands of matrix instructions");
        write_as(&values[block][strip][half * run], word);
    }
};

// One value per row, replicated in the four lanes that share the row.
template <class T, int Rows, int Warps>
struct row_fragment {
    static_assert(Rows > 0 && Rows % (16 * Warps) == 0,
                  "imbrex: a row vector's length must be a multiple of 16 for each warp of its scope");
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int warps = Warps;
    static constexpr int blocks = Rows / 16 / Warps;

    T values[blocks][2];
};

// One value per column, replicated in the eight lanes that share the column, and in every warp.
template <class T, int Columns>
struct column_fragment {
    static_assert(Columns > 0 && Columns % 8 == 0, "imbrex: a column vector's length must be a multiple of 8");
    using element = T;
    static constexpr int columns = Columns;
    static constexpr int strips = Columns / 8;

    T values[strips][2];
};

// Relabels a column-major tile as its row-major transpose, or the reverse: the same registers.
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL auto transposed(const fragment<T, Rows, Columns, Warps, Layout>& tile) {
    using fragment_type =
        fragment<T, Columns, Rows, Warps,
                 Layout == register_layout::row_major ? register_layout::column_major : register_layout::row_major>;
    fragment_type result;
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < fragment_type::strips; ++strip) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                using bits = word<fragment_type::run_bytes>;
                write_as(&result.values[block][strip][half * fragment_type::run],
                         read_as<bits>(&tile.values[block][strip][half * fragment_type::run]));
            }
        }
    }
    return result;
}

// How an operation accesses its first argument; only the host world's checker uses it.
enum class use { read, write, update };

// Row and column, as stored, of the elements of this lane.
template <class Fragment, class Scope>
IMBREX_KERNEL int stored_row(const Scope& scope, int block, int half) {
    return 16 * (block * Fragment::warps + scope.rank()) + 8 * half + lane_row();
}
template <class Fragment>
IMBREX_KERNEL int stored_column(int strip) {
    return strip * Fragment::strip_columns + lane_in_quad() * Fragment::run;
}

template <class Fragment, class Scope>
IMBREX_KERNEL void check_scope(const Scope&) {
    static_assert(Fragment::warps == Scope::warps, "imbrex: a register tile belongs to the scope it was made for");
}

// The value of a fragment, row fragment or column fragment at an element of First.
template <class First, class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL T& value_for(fragment<T, Rows, Columns, Warps, Layout>& from, int block, int strip, int item) {
    using other = fragment<T, Rows, Columns, Warps, Layout>;
    static_assert(other::rows == First::rows && other::columns == First::columns && other::warps == First::warps &&
                      other::held == First::held,
                  "imbrex: register tiles visited together must have the same shape, layout and scope");
    static_assert(other::strip_columns == First::strip_columns,
                  "imbrex: an 8-bit register tile can only be visited with other 8-bit ones; convert it first");
    return from.values[block][strip][item];
}
template <class First, class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL const T& value_for(const fragment<T, Rows, Columns, Warps, Layout>& from, int block, int strip,
                                 int item) {
    return value_for<First>(const_cast<fragment<T, Rows, Columns, Warps, Layout>&>(from), block, strip, item);
}
template <class First, class T, int Rows, int Warps>
IMBREX_KERNEL T& value_for(row_fragment<T, Rows, Warps>& from, int block, int, int item) {
    static_assert(First::held == register_layout::row_major,
                  "imbrex: row and column vectors need a row-major register tile");
    static_assert(Rows == First::rows && Warps == First::warps,
                  "imbrex: a row vector must have a value for each row of the register tile, in the same scope");
    return from.values[block][item / First::run];
}
template <class First, class T, int Rows, int Warps>
IMBREX_KERNEL const T& value_for(const row_fragment<T, Rows, Warps>& from, int block, int strip, int item) {
    return value_for<First>(const_cast<row_fragment<T, Rows, Warps>&>(from), block, strip, item);
}
template <class First, class T, int Columns>
IMBREX_KERNEL T& value_for(column_fragment<T, Columns>& from, int, int strip, int item) {
    static_assert(First::held == register_layout::row_major,
                  "imbrex: row and column vectors need a row-major register tile");
    static_assert(Columns == First::columns,
                  "imbrex: a column vector must have a value for each column of the register tile");
    static_assert(First::run == 2, "imbrex: 8-bit register tiles do not go with column vectors; convert them first");
    return from.values[strip][item % 2];
}
template <class First, class T, int Columns>
IMBREX_KERNEL const T& value_for(const column_fragment<T, Columns>& from, int block, int strip, int item) {
    return value_for<First>(const_cast<column_fragment<T, Columns>&>(from), block, strip, item);
}

// Calls f(row, column, value of first, value of each other) for every element that this thread holds.
template <class Scope, class F, class First, class... Others>
IMBREX_KERNEL void visit(const Scope& scope, use, source, F&& f, First& first, Others&... others) {
    using fragment_type = std::remove_const_t<First>;
    check_scope<fragment_type>(scope);
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < fragment_type::strips; ++strip) {
#pragma unroll
            for (int item = 0; item < fragment_type::each; ++item) {
                const int row = stored_row<fragment_type>(scope, block, item / fragment_type::run);
                const int column = stored_column<fragment_type>(strip) + item % fragment_type::run;
                constexpr bool by_rows = fragment_type::held == register_layout::row_major;
                f(by_rows ? row : column, by_rows ? column : row, first.values[block][strip][item],
                  value_for<fragment_type>(others, block, strip, item)...);
            }
        }
    }
}

// Calls f(value, next value in its row, column vector's value of the first) for every two neighbours in one lane, the
// first in an even column.
template <class Scope, class F, class T, int Rows, int Columns, int Warps, class V>
IMBREX_KERNEL void visit_neighbours(const Scope& scope, source, F&& f, fragment<T, Rows, Columns, Warps>& tile,
                                    const column_fragment<V, Columns>& vector) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    static_assert(fragment_type::run == 2,
                  "imbrex: 8-bit register tiles do not go with column vectors; convert them first");
    check_scope<fragment_type>(scope);
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < fragment_type::strips; ++strip) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                T* const two = &tile.values[block][strip][2 * half];
                f(two[0], two[1], vector.values[strip][0]);
            }
        }
    }
}

// Calls f(row, value of each vector) for every row of this thread; all lanes of a row do the same.
template <class Scope, class F, class First, class... Others>
IMBREX_KERNEL void visit_rows(const Scope& scope, use, source, F&& f, First& first, Others&... others) {
    check_scope<std::remove_const_t<First>>(scope);
    static_assert(((Others::rows == First::rows && Others::warps == First::warps) && ...),
                  "imbrex: row vectors visited together must have the same length and scope");
#pragma unroll
    for (int block = 0; block < First::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            f(stored_row<First>(scope, block, half), first.values[block][half], others.values[block][half]...);
        }
    }
}

// A word with the lowest `count` bits set: none for a negative count, at most 32.
IMBREX_KERNEL std::uint32_t lowest_bits(int count) {
    std::uint32_t result;
    asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(result) : "r"(count > 0 ? count : 0));
    return result;
}

// Sets elements outside the column range of their row, range(row).first up to range(row).end, to `masked`. A bit mask
// per row, made of two counts, selects the elements of a lane: the hardware converts seven bits of a word to predicates
// at a time.
template <class Scope, class T, int Rows, int Columns, int Warps, class Range>
IMBREX_KERNEL void keep_columns(const Scope& scope, fragment<T, Rows, Columns, Warps>& tile, const Range& range,
                                T masked, source) {
    using tile_type = fragment<T, Rows, Columns, Warps>;
    constexpr int run = tile_type::run;
    constexpr int in_row = tile_type::strips * run;
    check_scope<tile_type>(scope);
    const auto held_before = [](int column) {
        const int mine = column - lane_in_quad() * run;
        const int inside = mine & (tile_type::strip_columns - 1);
        return ((mine - inside) >> 2) + (inside < run ? inside : run);  // four lanes share a strip
    };
#pragma unroll
    for (int block = 0; block < tile_type::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const auto columns = range(stored_row<tile_type>(scope, block, half));
            const int before = held_before(columns.first);
            const int up_to = held_before(columns.end);
#pragma unroll
            for (int first = 0; first < in_row; first += 32) {
                const std::uint32_t stays = lowest_bits(up_to - first) & ~lowest_bits(before - first);
#pragma unroll
                for (int bit = 0; bit < 32 && first + bit < in_row; ++bit) {
                    T& value = tile.values[block][(first + bit) / run][half * run + bit % run];
                    value = (stays >> bit & 1) != 0 ? value : masked;
                }
            }
        }
    }
}

// Runs the body if any row of this warp satisfies the predicate. Warps of a scope may decide differently.
template <class Scope, class T, int Rows, int Warps, class F, class Body>
IMBREX_KERNEL void if_any_row(const Scope& scope, const row_fragment<T, Rows, Warps>& rows, F f, Body body,
                              source here) {
    bool found = false;
    visit_rows(
        scope, use::read, here, [&](int, const T& value) { found = found || f(value); }, rows);
    if (__any_sync(all_lanes, found)) body();
}

template <class Scope, class F, class First, class... Others>
IMBREX_KERNEL void visit_columns(const Scope&, use, source, F&& f, First& first, Others&... others) {
    static_assert(((Others::columns == First::columns) && ...),
                  "imbrex: column vectors visited together must have the same length");
#pragma unroll
    for (int strip = 0; strip < First::strips; ++strip) {
#pragma unroll
        for (int item = 0; item < 2; ++item) {
            f(strip * 8 + 2 * lane_in_quad() + item, first.values[strip][item], others.values[strip][item]...);
        }
    }
}

// Columns First to First + Count - 1 of a tile: a subset of its registers, which the compiler does not copy.
template <int First, int Count, class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL fragment<T, Rows, Count, Warps> columns_of(const Scope&, const fragment<T, Rows, Columns, Warps>& tile,
                                                         source) {
    using whole = fragment<T, Rows, Columns, Warps>;
    using part = fragment<T, Rows, Count, Warps>;
    static_assert(First % whole::strip_columns == 0, "imbrex: columns are taken from a register tile in whole strips");
    part result;
#pragma unroll
    for (int block = 0; block < part::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < part::strips; ++strip) {
#pragma unroll
            for (int item = 0; item < part::each; ++item) {
                result.values[block][strip][item] = tile.values[block][First / whole::strip_columns + strip][item];
            }
        }
    }
    return result;
}

// Calls f(element, element of `part`, row value) for the columns of a tile from First on that `part` has.
template <int First, class Scope, class F, class T, class U, class V, int Rows, int Columns, int Count, int Warps>
IMBREX_KERNEL void visit_columns_of(const Scope& scope, source, F&& f, fragment<T, Rows, Columns, Warps>& tile,
                                    const fragment<U, Rows, Count, Warps>& part,
                                    const row_fragment<V, Rows, Warps>& values) {
    using whole_type = fragment<T, Rows, Columns, Warps>;
    using part_type = fragment<U, Rows, Count, Warps>;
    static_assert(First % whole_type::strip_columns == 0 && part_type::run == whole_type::run,
                  "imbrex: columns are taken from a register tile in whole strips");
    check_scope<whole_type>(scope);
#pragma unroll
    for (int block = 0; block < part_type::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < part_type::strips; ++strip) {
#pragma unroll
            for (int item = 0; item < part_type::each; ++item) {
                f(tile.values[block][First / whole_type::strip_columns + strip][item], part.values[block][strip][item],
                  values.values[block][item / part_type::run]);
            }
        }
    }
}

// Values First to First + Count - 1 of a vector, in whole blocks of 16.
template <int First, int Count, class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL row_fragment<T, Count, Warps> rows_of(const Scope&, const row_fragment<T, Rows, Warps>& values, source) {
    row_fragment<T, Count, Warps> result;
#pragma unroll
    for (int block = 0; block < row_fragment<T, Count, Warps>::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            result.values[block][half] = values.values[First / (16 * Warps) + block][half];
        }
    }
    return result;
}

// One column of a tile, known only at run time, to all lanes of its rows. With eight columns each lane has one register
// per row to offer; with more, the register would have to be selected at run time.
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL row_fragment<T, Rows, Warps> column_of(const Scope&, const fragment<T, Rows, 8, Warps>& tile, int column,
                                                     source) {
    row_fragment<T, Rows, Warps> result;
#pragma unroll
    for (int block = 0; block < Rows / 16 / Warps; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const T(&pair)[4] = tile.values[block][0];
            const T mine = column % 2 == 0 ? pair[2 * half] : pair[2 * half + 1];
            result.values[block][half] = __shfl_sync(all_lanes, mine, lane() - lane_in_quad() + column / 2);
        }
    }
    return result;
}

// into = op(into, value) over the values of each row in this lane; combine_rows then combines the four lanes. They are
// separate, so that a loop over many tiles pays for the shuffles once, at its end.
template <class Scope, class T, int Rows, int Warps, class Tile, class Op>
IMBREX_KERNEL void fold_rows(const Scope& scope, row_fragment<T, Rows, Warps>& into, const Tile& tile, Op op,
                             source here = source::current()) {
    visit(
        scope, use::read, here, [&](int, int, const auto& value, T& result) { result = op(result, value); }, tile,
        into);
}

template <class Scope, class T, int Columns, class Tile, class Op>
IMBREX_KERNEL void fold_columns(const Scope& scope, column_fragment<T, Columns>& into, const Tile& tile, Op op,
                                source here = source::current()) {
    visit(
        scope, use::read, here, [&](int, int, const auto& value, T& result) { result = op(result, value); }, tile,
        into);
}

template <class T>
IMBREX_KERNEL T shuffle_xor(T value, int distance) {
    static_assert(sizeof(T) <= 4 || std::is_arithmetic_v<T>, "imbrex: only numbers are combined between lanes");
    if constexpr (std::is_arithmetic_v<T> && sizeof(T) >= 4) {
        return __shfl_xor_sync(all_lanes, value, distance);
    } else {
        using bits = word<sizeof(T)>;
        const unsigned other = __shfl_xor_sync(all_lanes, static_cast<unsigned>(read_as<bits>(&value)), distance);
        const bits narrow = static_cast<bits>(other);
        return read_as<T>(&narrow);
    }
}

template <class Scope, class T, int Rows, int Warps, class Op>
IMBREX_KERNEL void combine_rows(const Scope&, row_fragment<T, Rows, Warps>& rows, Op op, source = source::current()) {
#pragma unroll
    for (int block = 0; block < Rows / 16 / Warps; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            T& value = rows.values[block][half];
            value = op(value, shuffle_xor(value, 1));
            value = op(value, shuffle_xor(value, 2));
        }
    }
}

// Reduces the rows of this warp only; the warps of a larger scope keep separate results.
template <class Scope, class T, int Columns, class Op>
IMBREX_KERNEL void combine_columns(const Scope&, column_fragment<T, Columns>& columns, Op op,
                                   source = source::current()) {
#pragma unroll
    for (int strip = 0; strip < Columns / 8; ++strip) {
#pragma unroll
        for (int item = 0; item < 2; ++item) {
            T& value = columns.values[strip][item];
            value = op(value, shuffle_xor(value, 4));
            value = op(value, shuffle_xor(value, 8));
            value = op(value, shuffle_xor(value, 16));
        }
    }
}

}  // namespace imbrex::hw

#include <imbrex/hw/cuda/convert.hpp>  // completes the interface of <imbrex/hw/cuda/fragment.hpp>
