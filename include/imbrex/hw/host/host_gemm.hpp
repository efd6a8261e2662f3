// The CPU GEMM behind the host world's mma and wgmma: c (+)= a b^T for operands of any strides, in float or, for int8,
// in exact 32-bit integers.
//
// Operands are packed first, which converts them to float, unifies the layouts, and keeps the inner loop's data in the
// nearest cache. The micro-kernel holds a block of c in registers and makes one pass over k:
//
//                                  +---------------------+
//                                  |  b: [k][column]     |  a panel, in L1; vectors are along c's rows
//                                  +---------------------+
//      +---------------------+     +---------------------+
//      |  a: [row][k], in L2 |     |  c: in registers    |  each value of a is broadcast against a row of the panel
//      +---------------------+     +---------------------+
//
// int8 is multiplied in float too: a sum of at most 1024 products does not exceed 2^24, so float is exact, and most
// processors multiply floats faster than integers.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/owned.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace imbrex::hw {

// A strided operand: element (i, k) is data[i * outer + k * inner].
template <class T>
struct operand_view {
    const T* data;
    std::ptrdiff_t outer;
    std::ptrdiff_t inner;
};

// The widest float vectors that this compilation may use, and the number of registers. They are the compiler's vector
// extensions, not <immintrin.h>, so that one source serves x86 and Arm. Each width is its own type and everything below
// is a template on it: object files compiled for different processors can be linked together, and each keeps its own
// functions and buffers. zip_low and zip_high interleave the lower and upper halves of two vectors; nvcc accepts the
// builtin only with a literal width.
#if defined(__AVX512F__)
struct simd_f32x16 {
    typedef float vector __attribute__((vector_size(64)));
    static constexpr int registers = 32;
    static vector zip_low(vector a, vector b) {
        return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    }
    static vector zip_high(vector a, vector b) {
        return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
};
using native_simd = simd_f32x16;
#elif defined(__AVX__)
struct simd_f32x8 {
    typedef float vector __attribute__((vector_size(32)));
    static constexpr int registers = 16;
    static vector zip_low(vector a, vector b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
    static vector zip_high(vector a, vector b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
};
using native_simd = simd_f32x8;
#else
struct simd_f32x4 {
    typedef float vector __attribute__((vector_size(16)));
#if defined(__aarch64__)
    static constexpr int registers = 32;
#else
    static constexpr int registers = 16;
#endif
    static vector zip_low(vector a, vector b) {
        return __builtin_shufflevector(a, b, 0, 4, 1, 5);
    }
    static vector zip_high(vector a, vector b) {
        return __builtin_shufflevector(a, b, 2, 6, 3, 7);
    }
};
using native_simd = simd_f32x4;
#endif

template <class Vectors>
class host_gemm {
  public:
    template <class C, class A, class B>
    static void run(C* c, std::ptrdiff_t c_stride, operand_view<A> a, operand_view<B> b, int m, int n, int k,
                    bool accumulate) {
        if (m <= 0 || n <= 0) return;
        if (k <= 0) {
            for (int i = 0; i < m && !accumulate; ++i) std::fill_n(c + i * c_stride, n, C{});
            return;
        }
        buffers& packed = own_buffers();
        const int k_step = even_split(k, block_k), row_step = even_split(m, block_m);
        for (int k0 = 0; k0 < k; k0 += k_step) {
            const int k_count = std::min(k_step, k - k0);
            for (int i0 = 0; i0 < m; i0 += row_step) {
                const int rows = std::min(row_step, m - i0);
                pack(packed.a, a_stride, a.data + i0 * a.outer + k0 * a.inner, a.outer, a.inner, rows, k_count);
                for (int j0 = 0; j0 < n; j0 += panel_columns) {
                    const int columns = std::min(panel_columns, n - j0);
                    const int width = ceil_div(columns, lanes) * lanes;
                    pack(packed.b, width, b.data + j0 * b.outer + k0 * b.inner, b.inner, b.outer, k_count, columns);
                    clear_columns(packed.b, width, columns, k_count);
                    multiply_panel(c + i0 * c_stride + j0, c_stride, packed, rows, columns, k_count,
                                   accumulate || k0 > 0);
                }
            }
        }
    }

  private:
    using vector = typename Vectors::vector;
    static constexpr int lanes = sizeof(vector) / sizeof(float);
    // Sums, a row of b and one value of a must fit in the registers, with enough sums to hide the latency of an FMA.
    static constexpr int panel_vectors = 2;
    static constexpr int panel_columns = panel_vectors * lanes;
    static constexpr int panel_rows = Vectors::registers == 32 ? 8 : 6;
    static constexpr int block_k = 256;
    static constexpr int block_m = 256;
    // Not a power of two: the rows of a would map to the same cache sets of L1.
    static constexpr int a_stride = block_k + 16;
    // Elements converted at once. Compilers rarely vectorise a loop of unknown, possibly small, length.
    static constexpr int strip = 32;
    static_assert(block_k <= 1024, "imbrex: a float must hold the sum of block_k products of int8 exactly");

    struct alignas(64) buffers {
        float a[block_m * a_stride];
        float b[block_k * panel_columns];
        float c[panel_rows * panel_columns];
    };

    // On the heap, since thread-local variables count against the stack of a thread. No code in here yields to another
    // fiber.
    static buffers& own_buffers() {
        thread_local const owned<buffers> own(new buffers);
        return *own;
    }

    // Splits `total` into as few and as even parts of at most `most` as possible, and returns their size.
    static int even_split(int total, int most) {
        const int parts = ceil_div(total, most);
        return ceil_div(total, parts);
    }

    // Calls body with the constants 0 ... Count - 1. An array that only constants index stays in registers, provided
    // that everything is inlined, which [[gnu::flatten]] on the callers ensures.
    template <int Count, class Body>
    static void unroll(Body body) {
        [&]<int... Index>(std::integer_sequence<int, Index...>) {
            (body(std::integral_constant<int, Index>{}), ...);
        }
        (std::make_integer_sequence<int, Count>{});
    }

    static vector load(const float* from) {
        vector values;
        std::memcpy(&values, from, sizeof values);
        return values;
    }

    static void store(float* to, vector values) { std::memcpy(to, &values, sizeof values); }

    // The columns of one panel, for all rows of the block.
    template <class C>
    static void multiply_panel(C* c, std::ptrdiff_t c_stride, buffers& packed, int rows, int columns, int k_count,
                               bool accumulate) {
        const int vectors = ceil_div(columns, lanes);
        const int row_step = even_split(rows, panel_rows);
        for (int i0 = 0; i0 < rows; i0 += row_step) {
            const int count = std::min(row_step, rows - i0);
            const micro_kernel_function multiply_rows = micro_kernels[(vectors - 1) * panel_rows + count - 1];
            const float* a = packed.a + i0 * a_stride;
            if constexpr (std::is_same_v<C, float>) {
                if (columns == vectors * lanes) {
                    multiply_rows(c + i0 * c_stride, c_stride, a, packed.b, k_count, accumulate);
                    continue;
                }
            }
            multiply_rows(packed.c, panel_columns, a, packed.b, k_count, false);
            for (int i = 0; i < count; ++i) {
                add_row(c + (i0 + i) * c_stride, packed.c + i * panel_columns, columns, accumulate);
            }
        }
    }

    template <class C>
    static void add_row(C* c, const float* sums, int columns, bool accumulate) {
        for (int j = 0; j < columns; ++j) {
            if constexpr (std::is_same_v<C, std::int32_t>) {
                // Unsigned, so that it wraps on overflow like the device's accumulators.
                const std::uint32_t before = accumulate ? static_cast<std::uint32_t>(c[j]) : 0U;
                const std::int32_t sum = static_cast<std::int32_t>(sums[j]);
                c[j] = static_cast<std::int32_t>(before + static_cast<std::uint32_t>(sum));
            } else {
                c[j] = accumulate ? c[j] + sums[j] : sums[j];
            }
        }
    }

    // c (+)= a b^T for Rows rows and Columns vectors of columns, all sums in registers.
    template <int Rows, int Columns>
    [[gnu::flatten]] static void micro_kernel(float* c, std::ptrdiff_t c_stride, const float* a, const float* b,
                                              int k_count, bool accumulate) {
        vector sums[Rows][Columns] = {};
        for (int k = 0; k < k_count; ++k, b += Columns * lanes) {
            vector right[Columns];
            unroll<Columns>([&](auto j) { right[j] = load(b + j * lanes); });
            unroll<Rows>([&](auto i) {
                const float left = a[i * a_stride + k];
                unroll<Columns>([&](auto j) { sums[i][j] = left * right[j] + sums[i][j]; });
            });
        }
        unroll<Rows>([&](auto i) {
            unroll<Columns>([&](auto j) {
                float* to = c + j * lanes;
                store(to, accumulate ? load(to) + sums[i][j] : sums[i][j]);
            });
            c += c_stride;
        });
    }

    using micro_kernel_function = void (*)(float*, std::ptrdiff_t, const float*, const float*, int, bool);

    template <std::size_t... Index>
    static constexpr auto micro_kernel_table(std::index_sequence<Index...>) {
        return std::array<micro_kernel_function, sizeof...(Index)>{
            &micro_kernel<static_cast<int>(Index % panel_rows) + 1, static_cast<int>(Index / panel_rows) + 1>...};
    }

    // to[row * to_stride + column] = from[row * row_stride + column * column_stride], as floats.
    template <class T>
    static void pack(float* to, int to_stride, const T* from, std::ptrdiff_t row_stride, std::ptrdiff_t column_stride,
                     int rows, int columns) {
        if (column_stride == 1) {
            for (int i = 0; i < rows; ++i) convert_row(to + i * to_stride, from + i * row_stride, columns);
            return;
        }
        int rows_done = 0;
        int columns_done = 0;
        if (row_stride == 1) {
            rows_done = rows / lanes * lanes;
            columns_done = columns / lanes * lanes;
            for (int j = 0; j < columns_done; j += lanes) {
                transpose(to + j, to_stride, from + j * column_stride, column_stride, rows_done);
            }
        }
        const auto convert_rest = [&](int first_row, int end_row, std::ptrdiff_t first_column) {
            for (int i = first_row; i < end_row; ++i) {
                for (std::ptrdiff_t j = first_column; j < columns; ++j) {
                    to[i * to_stride + j] = convert<float>(from[i * row_stride + j * column_stride]);
                }
            }
        };
        convert_rest(0, rows_done, columns_done);
        convert_rest(rows_done, rows, 0);
    }

    template <class T>
    static void convert_row(float* __restrict to, const T* __restrict from, int count) {
        int done = 0;
        for (; done + strip <= count; done += strip, to += strip, from += strip) {
            for (int i = 0; i < strip; ++i) to[i] = convert<float>(from[i]);
        }
        for (int i = 0; i < count - done; ++i) to[i] = convert<float>(from[i]);
    }

    // A column of square blocks: to[row * to_stride + column] = from[row + column * column_stride] for `lanes` columns
    // and a multiple of that in rows.
    template <class T>
    static void transpose(float* to, int to_stride, const T* from, std::ptrdiff_t column_stride, int rows) {
        if constexpr (std::is_same_v<T, float>) {
            for (int i = 0; i < rows; i += lanes) {
                transpose_block(to + i * to_stride, to_stride, from + i, column_stride);
            }
        } else {
            for (int i = 0; i < rows; i += strip) {
                const int count = std::min(strip, rows - i);
                float converted[lanes * strip];
                for (int j = 0; j < lanes; ++j) convert_row(converted + j * strip, from + j * column_stride + i, count);
                transpose(to + i * to_stride, to_stride, converted, strip, count);
            }
        }
    }

    // Each round deals the upper half of the vectors into the lower one; after log2(lanes) rounds rows are columns.
    [[gnu::flatten]] static void transpose_block(float* to, int to_stride, const float* from,
                                                 std::ptrdiff_t column_stride) {
        vector values[lanes];
        unroll<lanes>([&](auto j) { values[j] = load(from + j * column_stride); });
        for (int distance = 1; distance < lanes; distance *= 2) {
            vector dealt[lanes];
            unroll<lanes / 2>([&](auto j) {
                dealt[2 * j] = Vectors::zip_low(values[j], values[j + lanes / 2]);
                dealt[2 * j + 1] = Vectors::zip_high(values[j], values[j + lanes / 2]);
            });
            unroll<lanes>([&](auto j) { values[j] = dealt[j]; });
        }
        unroll<lanes>([&](auto i) { store(to + i * to_stride, values[i]); });
    }

    // The last vector of a panel may extend past c; those products are not stored.
    static void clear_columns(float* b, int width, int columns, int k_count) {
        if (columns == width) return;
        for (int k = 0; k < k_count; ++k) std::fill(b + k * width + columns, b + (k + 1) * width, 0.0f);
    }

    static constexpr auto micro_kernels = micro_kernel_table(std::make_index_sequence<panel_rows * panel_vectors>{});
};

// c[i * c_stride + j] (+)= sum over k of a(i, k) * b(j, k). Overwrites c without reading it unless `accumulate`. c must
// not overlap a or b.
template <class C, class A, class B, class Vectors = native_simd>
void multiply(C* c, std::ptrdiff_t c_stride, operand_view<A> a, operand_view<B> b, int m, int n, int k,
              bool accumulate) {
    static_assert(std::is_same_v<C, float> || (std::is_same_v<C, std::int32_t> && std::is_same_v<A, std::int8_t> &&
                                               std::is_same_v<B, std::int8_t>),
                  "imbrex: a matrix product accumulates in float, or in int32 where both operands are int8");
    host_gemm<Vectors>::run(c, c_stride, a, b, m, n, k, accumulate);
}

}  // namespace imbrex::hw
