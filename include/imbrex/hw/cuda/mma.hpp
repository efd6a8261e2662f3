// mma.sync: a warp multiplies 16 x k by k x 8 from registers, accumulating in registers (sm_80 and later; fp8 from
// sm_89 on). k is 16 for 16-bit elements and 32 for 8-bit ones.
//
// The B operand is stored by columns: as the row-major fragment of its N x K transpose. A block of 16 of its rows
// serves two instructions, the upper eight rows the first and the lower eight the second.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>

namespace imbrex::hw {

template <class T>
inline constexpr bool is_fp8 = std::is_same_v<T, e4m3> || std::is_same_v<T, e5m2>;

template <class A, class B>
inline constexpr bool has_mma = has_fp8_mma && (is_fp8<A>)&&(is_fp8<B>);
template <>
inline constexpr bool has_mma<bf16, bf16> = true;
template <>
inline constexpr bool has_mma<fp16, fp16> = true;
template <>
inline constexpr bool has_mma<std::int8_t, std::int8_t> = true;

template <class A>
using mma_accumulator = std::conditional_t<std::is_same_v<A, std::int8_t>, std::int32_t, float>;

// One instruction: c += a * b.
template <class A, class B, class C>
IMBREX_KERNEL void mma_step(C (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<A, bf16>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else if constexpr (std::is_same_v<A, fp16>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else if constexpr (std::is_same_v<A, std::int8_t>) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else if constexpr (std::is_same_v<A, e4m3> && std::is_same_v<B, e4m3>) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else if constexpr (std::is_same_v<A, e4m3> && std::is_same_v<B, e5m2>) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else if constexpr (std::is_same_v<A, e5m2> && std::is_same_v<B, e4m3>) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else if constexpr (std::is_same_v<A, e5m2> && std::is_same_v<B, e5m2>) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

// c += a * transpose of b. If b has more rows than c has columns, the first ones.
template <class Warp, class C, class A, class B, int M, int N, int K, int Rows>
IMBREX_KERNEL void mma_sync(const Warp&, fragment<C, M, N, 1>& c, const fragment<A, M, K, 1>& a,
                            const fragment<B, Rows, K, 1>& b, source = source::current()) {
    static_assert(Rows >= N, "imbrex: the B operand of mma.sync has fewer rows than the accumulator has columns");
    static_assert(Warp::warps == 1, "imbrex: mma.sync multiplies at warp scope");
    static_assert(has_mma<A, B>,
                  "imbrex: no mma.sync for these element types here: both bf16, both fp16, both int8, or, from sm_89 "
                  "on, any of e4m3 and e5m2");
    static_assert(std::is_same_v<C, mma_accumulator<A>>, "imbrex: mma.sync accumulates in float, or in int32 for int8");
    static_assert(fragment<A, M, K, 1>::strips % 2 == 0,
                  "imbrex: the inner dimension of mma.sync must be a multiple of 16, of 32 for 8-bit elements");
#pragma unroll
    for (int k = 0; k < fragment<A, M, K, 1>::strips; k += 2) {
#pragma unroll
        for (int row = 0; row < M / 16; ++row) {
            const std::uint32_t left[4] = {a.word_at(row, k, 0), a.word_at(row, k, 1), a.word_at(row, k + 1, 0),
                                           a.word_at(row, k + 1, 1)};
#pragma unroll
            for (int column = 0; column < N / 8; ++column) {
                const std::uint32_t right[2] = {b.word_at(column / 2, k, column % 2),
                                                b.word_at(column / 2, k + 1, column % 2)};
                mma_step<A, B>(c.values[row][column], left, right);
            }
        }
    }
}

}  // namespace imbrex::hw
