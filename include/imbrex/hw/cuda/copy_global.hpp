// Copies between registers and global memory, without shared memory: each lane moves its neighbouring elements as one
// word if the matrix is aligned. 16-bit elements are exchanged between the lanes of a row and stored 16 bytes at a
// time. Out-of-bounds rows and columns are filled or skipped, never accessed.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// Whether every row of the rectangle starts at a multiple of Bytes bytes.
template <int Bytes, class T>
IMBREX_KERNEL bool rows_aligned(const global_tile<T>& tile) {
    const auto start = reinterpret_cast<std::uintptr_t>(tile.pointer);
    const auto stride = static_cast<std::uintptr_t>(tile.row_stride) * sizeof(T);
    return (start | stride) % Bytes == 0;
}

// Moves rows by move_row(exists, first element of this lane, block, half) if all columns exist and are aligned,
// otherwise elements by move_element(exists, address, value). The choice is uniform over the scope.
template <class Scope, class Fragment, class T, class MoveRow, class MoveElement>
IMBREX_KERNEL void move_global(const Scope& scope, Fragment& held, const global_tile<T>& tile, MoveRow&& move_row,
                               MoveElement&& move_element) {
    using fragment_type = std::remove_const_t<Fragment>;
    check_scope<fragment_type>(scope);
    if constexpr (fragment_type::held == register_layout::row_major) {
        if (tile.columns >= fragment_type::columns && rows_aligned<fragment_type::run_bytes>(tile)) {
#pragma unroll
            for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = stored_row<fragment_type>(scope, block, half);
                    move_row(row < tile.rows, tile.at(row, stored_column<fragment_type>(0)), block, half);
                }
            }
            return;
        }
    }
    visit(
        scope, use::update, source{},
        [&](int row, int column, auto& value) { move_element(tile.has(row, column), tile.at(row, column), value); },
        held);
}

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL void load_global(const Scope& scope, fragment<T, Rows, Columns, Warps, Layout>& to,
                               const std::type_identity_t<global_tile<const T>>& from, std::type_identity_t<T> fill,
                               source = source::current()) {
    using fragment_type = fragment<T, Rows, Columns, Warps, Layout>;
    using run_word = word<fragment_type::run_bytes>;
    const auto move_row = [&](bool exists, const T* start, int block, int half) {
        if (exists) {
#pragma unroll
            for (int strip = 0; strip < fragment_type::strips; ++strip) {
                write_as(&to.values[block][strip][half * fragment_type::run],
                         *reinterpret_cast<const run_word*>(start + strip * fragment_type::strip_columns));
            }
        } else {
#pragma unroll
            for (int strip = 0; strip < fragment_type::strips; ++strip) {
#pragma unroll
                for (int item = 0; item < fragment_type::run; ++item) {
                    to.values[block][strip][half * fragment_type::run + item] = fill;
                }
            }
        }
    };
    move_global(scope, to, from, move_row,
                [&](bool exists, const T* place, T& value) { value = exists ? *place : fill; });
}

// Transposes words within a quad: each lane has a word of four strips, and afterwards the four words of one strip. Two
// rounds of exchanges between two lanes.
IMBREX_KERNEL uint4 words_of_one_strip(uint4 mine) {
    const auto exchange = [](std::uint32_t& low, std::uint32_t& high, int distance) {
        const bool upper = (lane() & distance) != 0;
        const std::uint32_t other = __shfl_xor_sync(all_lanes, upper ? low : high, distance);
        low = upper ? other : low;
        high = upper ? high : other;
    };
    exchange(mine.x, mine.y, 1);
    exchange(mine.z, mine.w, 1);
    exchange(mine.x, mine.z, 2);
    exchange(mine.y, mine.w, 2);
    return mine;
}

// One access: the compiler splits a uint4 that it has assembled itself into four.
IMBREX_KERNEL void store_chunk(void* to, uint4 chunk) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
                 : "memory");
}

// A fragment of 16-bit elements whose rows begin and end at multiples of 16 bytes.
template <class Scope, class T, class Fragment>
IMBREX_KERNEL void store_chunks(const Scope& scope, const global_tile<T>& to, const Fragment& from) {
#pragma unroll
    for (int block = 0; block < Fragment::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = stored_row<Fragment>(scope, block, half);
#pragma unroll
            for (int strip = 0; strip < Fragment::strips; strip += 4) {
                const uint4 chunk =
                    words_of_one_strip({from.word_at(block, strip, half), from.word_at(block, strip + 1, half),
                                        from.word_at(block, strip + 2, half), from.word_at(block, strip + 3, half)});
                const int column = (strip + lane_in_quad()) * Fragment::strip_columns;
                if (to.has(row, column)) store_chunk(to.at(row, column), chunk);
            }
        }
    }
}

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL void store_global(const Scope& scope, const global_tile<T>& to,
                                const fragment<T, Rows, Columns, Warps, Layout>& from, source = source::current()) {
    using fragment_type = fragment<T, Rows, Columns, Warps, Layout>;
    using run_word = word<fragment_type::run_bytes>;
    if constexpr (sizeof(T) == 2 && Layout == register_layout::row_major && fragment_type::strips % 4 == 0) {
        if (rows_aligned<16>(to) && (to.columns >= Columns || to.columns % fragment_type::strip_columns == 0)) {
            store_chunks(scope, to, from);
            return;
        }
    }
    const auto move_row = [&](bool exists, T* start, int block, int half) {
        if (!exists) return;
#pragma unroll
        for (int strip = 0; strip < fragment_type::strips; ++strip) {
            *reinterpret_cast<run_word*>(start + strip * fragment_type::strip_columns) =
                read_as<run_word>(&from.values[block][strip][half * fragment_type::run]);
        }
    };
    move_global(scope, from, to, move_row, [&](bool exists, T* place, const T& value) {
        if (exists) *place = value;
    });
}

// Rows at arbitrary addresses row_pointer(row), or `fill` if that is null. They are aligned to the bytes that a lane
// moves at once.
template <class Scope, class T, int Rows, int Columns, int Warps, class RowPointer>
IMBREX_KERNEL void gather_rows(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, RowPointer&& row_pointer,
                               T fill, source = source::current()) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    using run_word = word<fragment_type::run_bytes>;
    check_scope<fragment_type>(scope);
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const T* const row = row_pointer(stored_row<fragment_type>(scope, block, half));
#pragma unroll
            for (int strip = 0; strip < fragment_type::strips; ++strip) {
                T(&values)[fragment_type::each] = to.values[block][strip];
                if (row != nullptr) {
                    write_as(&values[half * fragment_type::run],
                             *reinterpret_cast<const run_word*>(row + stored_column<fragment_type>(strip)));
                } else {
#pragma unroll
                    for (int item = 0; item < fragment_type::run; ++item) {
                        values[half * fragment_type::run + item] = fill;
                    }
                }
            }
        }
    }
}

// Stores to row_pointer(row), unless that is null.
template <class Scope, class T, int Rows, int Columns, int Warps, class RowPointer>
IMBREX_KERNEL void scatter_rows(const Scope& scope, RowPointer&& row_pointer,
                                const fragment<T, Rows, Columns, Warps>& from, source = source::current()) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    using run_word = word<fragment_type::run_bytes>;
    check_scope<fragment_type>(scope);
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            T* const row = row_pointer(stored_row<fragment_type>(scope, block, half));
            if (row == nullptr) continue;
#pragma unroll
            for (int strip = 0; strip < fragment_type::strips; ++strip) {
                *reinterpret_cast<run_word*>(row + stored_column<fragment_type>(strip)) =
                    read_as<run_word>(&from.values[block][strip][half * fragment_type::run]);
            }
        }
    }
}

// The registers of each lane in lane order, so that accesses are coalesced. The memory has as many elements as the
// lanes hold together.
template <int Bytes, class T>
IMBREX_KERNEL word<Bytes>* lane_chunk(T* place, int number) {
    return reinterpret_cast<word<Bytes>*>(place) + number * 32 + lane();
}
template <int Bytes, class T>
IMBREX_KERNEL const word<Bytes>* lane_chunk(const T* place, int number) {
    return reinterpret_cast<const word<Bytes>*>(place) + number * 32 + lane();
}
template <class Warp, class T, int Rows, int Columns>
IMBREX_KERNEL void save_lanes(const Warp&, T* place, const fragment<T, Rows, Columns, 1>& from, source) {
    using fragment_type = fragment<T, Rows, Columns, 1>;
    constexpr int bytes = fragment_type::each * static_cast<int>(sizeof(T));
#pragma unroll
    for (int i = 0; i < fragment_type::blocks * fragment_type::strips; ++i) {
        *lane_chunk<bytes>(place, i) =
            read_as<word<bytes>>(from.values[i / fragment_type::strips][i % fragment_type::strips]);
    }
}
template <class Warp, class T, int Rows, int Columns>
IMBREX_KERNEL void restore_lanes(const Warp&, fragment<T, Rows, Columns, 1>& to, const T* place, source) {
    using fragment_type = fragment<T, Rows, Columns, 1>;
    constexpr int bytes = fragment_type::each * static_cast<int>(sizeof(T));
#pragma unroll
    for (int i = 0; i < fragment_type::blocks * fragment_type::strips; ++i) {
        write_as(to.values[i / fragment_type::strips][i % fragment_type::strips], *lane_chunk<bytes>(place, i));
    }
}
template <class Warp, class T, int Rows>
IMBREX_KERNEL void save_lanes(const Warp&, T* place, const row_fragment<T, Rows, 1>& from, source) {
    constexpr int bytes = 2 * static_cast<int>(sizeof(T));
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
        *lane_chunk<bytes>(place, block) = read_as<word<bytes>>(from.values[block]);
    }
}
template <class Warp, class T, int Rows>
IMBREX_KERNEL void restore_lanes(const Warp&, row_fragment<T, Rows, 1>& to, const T* place, source) {
    constexpr int bytes = 2 * static_cast<int>(sizeof(T));
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
        write_as(to.values[block], *lane_chunk<bytes>(place, block));
    }
}

// Sets every element of the rectangle to `value`.
template <class Scope, class T>
IMBREX_KERNEL void fill_global(const Scope& scope, const global_tile<T>& to, T value, source = source::current()) {
    for (int row = scope.rank(); row < to.rows; row += Scope::warps) {
        for (int column = lane(); column < to.columns; column += 32) *to.at(row, column) = value;
    }
}

}  // namespace imbrex::hw
