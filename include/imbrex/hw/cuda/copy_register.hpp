// Copies between registers and shared memory. 8- and 16-bit elements move by ldmatrix and stmatrix in 16-byte chunks,
// the unit of the swizzle, without bank conflicts; wider elements by ordinary vector accesses.
//
// Every operation on shared memory, here and in the sibling headers, begins with __syncwarp: accesses of other lanes in
// the preceding operation are complete. This is why the checker treats the operations of one warp as ordered. ldmatrix
// waits for all lanes itself; a __syncwarp before it would keep the compiler from moving it across preceding matrix
// products.
//
// A subtile of a shared tile must start at a whole chunk: its first column is a multiple of 16 bytes.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/copy_transposed.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

template <class Fragment, class Shared, class Scope>
IMBREX_KERNEL void check_shared(const Scope& scope) {
    static_assert(std::is_same_v<typename Fragment::element, std::remove_const_t<typename Shared::element>>,
                  "imbrex: a register tile and a shared tile must have one element type; convert in registers");
    static_assert(Fragment::rows == Shared::rows && Fragment::columns == Shared::columns,
                  "imbrex: a register tile and a shared tile, or its part, must have one shape");
    check_scope<Fragment>(scope);
}

// Whether matrix instructions can move the fragment: in column-major layout they transpose 16-bit elements only.
template <class Fragment>
inline constexpr bool moves_by_matrix = sizeof(typename Fragment::element) == 2 ||
                                        (sizeof(typename Fragment::element) == 1 &&
                                         Fragment::held == register_layout::row_major);

// The chunk whose address this lane supplies for the matrices of a block: for A, two matrices of 8 rows in the first
// strip and two in the next; for B, the two strips of the first 8 rows, then those of the others. The swizzle repeats
// every eight rows, so rows a multiple of eight below are at a constant distance and need no other address.
template <class Fragment, mma_operand Operand = mma_operand::a, class Scope, class Shared>
IMBREX_KERNEL auto* matrix_row(const Scope& scope, Shared& shared, int block, int strip) {
    const int matrix = lane() / 8, line = lane() % 8;
    const bool alone = strip + 1 == Fragment::strips;
    const int first_row = 16 * scope.rank() + 8 * (Operand == mma_operand::a || alone ? matrix % 2 : matrix / 2);
    const int first_column = (alone                       ? 0
                              : Operand == mma_operand::a ? matrix / 2
                                                          : matrix % 2) *
                             Fragment::strip_columns;
    const int row_below = 16 * Fragment::warps * block, column_beside = strip * Fragment::strip_columns;
    constexpr int row_bytes = layout_of<Shared>::panel_bytes_wide;
    if constexpr (Fragment::held == register_layout::row_major) {
        return place_in_shared(shared, first_row + line, first_column + column_beside) + row_below * row_bytes;
    } else {
        return place_in_shared(shared, first_column + line, first_row + row_below) + column_beside * row_bytes;
    }
}

// The four words of two strips go to consecutive registers in the order of the instruction: all four as an A operand,
// two and two as B operands.
template <mma_operand Operand, class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout,
          class Shared>
IMBREX_KERNEL void load_operand(const Scope& scope, fragment<T, Rows, Columns, Warps, Layout>& to, const Shared& from,
                                source = source::current()) {
    using fragment_type = fragment<T, Rows, Columns, Warps, Layout>;
    check_shared<fragment_type, Shared>(scope);
    constexpr bool transposed = Layout == register_layout::column_major;
    if constexpr (sizeof(T) > 2) __syncwarp();
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
        if constexpr (sizeof(T) == 1 && transposed) {
            load_bytes_transposed(scope, to, from, block);
        } else if constexpr (moves_by_matrix<fragment_type>) {
#pragma unroll
            for (int strip = 0; strip + 1 < fragment_type::strips; strip += 2) {
                std::uint32_t words[4];
                load_matrices<transposed>(words, matrix_row<fragment_type, Operand>(scope, from, block, strip));
                constexpr bool left = Operand == mma_operand::a;
                to.set_word(block, strip, 0, words[0]);
                to.set_word(block, strip, 1, words[left ? 1 : 2]);
                to.set_word(block, strip + 1, 0, words[left ? 2 : 1]);
                to.set_word(block, strip + 1, 1, words[3]);
            }
            if constexpr (fragment_type::strips % 2 != 0) {
                constexpr int last = fragment_type::strips - 1;
                std::uint32_t words[2];
                load_matrices<transposed>(words, matrix_row<fragment_type>(scope, from, block, last));
                to.set_word(block, last, 0, words[0]);
                to.set_word(block, last, 1, words[1]);
            }
        } else {
#pragma unroll
            for (int strip = 0; strip < fragment_type::strips; ++strip) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = stored_row<fragment_type>(scope, block, half);
                    const int column = stored_column<fragment_type>(strip);
                    T* values = &to.values[block][strip][half * fragment_type::run];
                    if constexpr (Layout == register_layout::row_major) {
                        using run_word = word<fragment_type::run_bytes>;
                        write_as(values, *reinterpret_cast<const run_word*>(from.at(row, column)));
                    } else {
#pragma unroll
                        for (int item = 0; item < fragment_type::run; ++item)
                            values[item] = *from.at(column + item, row);
                    }
                }
            }
        }
    }
}

// Eight rows as the first half of a B operand; the other half is zero.
template <class Scope, class T, int Columns, class Shared>
IMBREX_KERNEL void load_eight_rows(const Scope& scope, fragment<T, 16, Columns, 1>& to, const Shared& from, source) {
    using fragment_type = fragment<T, 16, Columns, 1>;
    static_assert(sizeof(T) == 2 && Columns % 32 == 0 && Shared::rows == 8 && Shared::columns == Columns,
                  "imbrex: load_eight_rows takes a shared tile of 8 rows and a multiple of 32 16-bit columns");
    check_scope<fragment_type>(scope);
#pragma unroll
    for (int strip = 0; strip < fragment_type::strips; strip += 4) {
        std::uint32_t words[4];
        load_matrices<false>(words, from.at(lane() % 8, (strip + lane() / 8) * 8));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            to.set_word(0, strip + i, 0, words[i]);
            to.set_word(0, strip + i, 1, 0);
        }
    }
}

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Shared>
IMBREX_KERNEL void load_shared(const Scope& scope, fragment<T, Rows, Columns, Warps, Layout>& to, const Shared& from,
                               source here = source::current()) {
    load_operand<mma_operand::a>(scope, to, from, here);
}

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Shared>
IMBREX_KERNEL void store_shared(const Scope& scope, Shared&& to, const fragment<T, Rows, Columns, Warps, Layout>& from,
                                source = source::current()) {
    using fragment_type = fragment<T, Rows, Columns, Warps, Layout>;
    check_shared<fragment_type, std::remove_cvref_t<Shared>>(scope);
    __syncwarp();
    constexpr bool transposed = Layout == register_layout::column_major;
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
        if constexpr (moves_by_matrix<fragment_type> && has_tma) {
#pragma unroll
            for (int strip = 0; strip + 1 < fragment_type::strips; strip += 2) {
                const std::uint32_t words[4] = {from.word_at(block, strip, 0), from.word_at(block, strip, 1),
                                                from.word_at(block, strip + 1, 0), from.word_at(block, strip + 1, 1)};
                store_matrices<transposed>(matrix_row<fragment_type>(scope, to, block, strip), words);
            }
            if constexpr (fragment_type::strips % 2 != 0) {
                constexpr int last = fragment_type::strips - 1;
                const std::uint32_t words[2] = {from.word_at(block, last, 0), from.word_at(block, last, 1)};
                store_matrices<transposed>(matrix_row<fragment_type>(scope, to, block, last), words);
            }
        } else {
#pragma unroll
            for (int strip = 0; strip < fragment_type::strips; ++strip) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = stored_row<fragment_type>(scope, block, half);
                    const int column = stored_column<fragment_type>(strip);
                    const T* values = &from.values[block][strip][half * fragment_type::run];
                    if constexpr (Layout == register_layout::row_major) {
                        using run_word = word<fragment_type::run_bytes>;
                        *reinterpret_cast<run_word*>(to.at(row, column)) = read_as<run_word>(values);
                    } else {
#pragma unroll
                        for (int item = 0; item < fragment_type::run; ++item) *to.at(column + item, row) = values[item];
                    }
                }
            }
        }
    }
}

}  // namespace imbrex::hw
