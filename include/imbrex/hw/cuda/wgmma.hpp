// wgmma: a warpgroup multiplies tiles in shared memory (A may be in registers) and accumulates in registers,
// asynchronously. Issue any number of wgmma, then wgmma_commit, then wgmma_wait before the accumulators are read or the
// tiles overwritten. sm_90a only.
//
// The hardware addresses a tile in shared memory through a matrix descriptor: start address, swizzle, and two strides
// between the 8-row patterns of the swizzle.
//
//     bits  0-13 start / 16   16-29 leading stride / 16   32-45 stride / 16   62-63 swizzle: 1 128, 2 64, 3 32 bytes
//
//   K-major (k along the rows in memory): 8 rows of a panel are a pattern. The stride is the distance to the next 8
//   rows; the leading stride is unused. The next k is 32 bytes further on, or in the next panel.
//   MN-major (k down the columns): 8 k's are a pattern. The stride is the distance to the next 8 k's, the leading
//   stride that to the next panel of m or n. Without a swizzle, where a row is exactly 16 bytes, the two are exchanged.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/gmma.hpp>
#include <imbrex/hw/cuda/scope.hpp>

#include <utility>

namespace imbrex::hw {

// A tile or subtile in shared memory as an operand. AcrossK (MN-major): k runs down its rows, it is stored as k x MN.
template <class Shared, bool AcrossK>
struct wgmma_operand {
    using element = std::remove_const_t<typename Shared::element>;
    using layout = layout_of<Shared>;
    static constexpr int k = AcrossK ? Shared::rows : Shared::columns;
    static constexpr int mn = AcrossK ? Shared::columns : Shared::rows;
    static constexpr int k_step = 32 / static_cast<int>(sizeof(element));
    static constexpr int wide = layout::panel_bytes_wide;

    static_assert(k % k_step == 0,
                  "imbrex: the inner dimension of wgmma must be a multiple of 16, of 32 for 8-bit elements");
    static_assert(sizeof(element) == 2 || !AcrossK,
                  "imbrex: wgmma reads 8-bit tiles only with the inner dimension along their rows");
    static_assert(layout::swizzle_bytes != 0 || (AcrossK && wide == 16),
                  "imbrex: wgmma reads tiles whose rows are a multiple of 32 bytes, or, across the inner dimension, "
                  "exactly 16 bytes");

    static constexpr int pattern = 8 * wide;
    static constexpr int leading = !AcrossK ? 16 : layout::swizzle_bytes == 0 ? pattern : layout::panel_bytes;
    static constexpr std::uint32_t swizzle = layout::swizzle_bytes == 128  ? 1
                                             : layout::swizzle_bytes == 64 ? 2
                                             : layout::swizzle_bytes == 32 ? 3
                                                                           : 0;
    static constexpr std::uint32_t high_word = static_cast<std::uint32_t>(pattern >> 4) | swizzle << 30;

    std::uint32_t low_word;

    IMBREX_KERNEL explicit wgmma_operand(const Shared& tile)
        : low_word((shared_address(tile.at(0, 0)) & 0x3ffffU) >> 4 | static_cast<std::uint32_t>(leading >> 4) << 16) {}

    // The byte offset of row 64 * block of m (or 0 of n) and of k_step * step of k.
    static constexpr IMBREX_KERNEL int byte_offset(int block, int step) {
        if constexpr (AcrossK) {
            return block * 64 / layout::panel_columns * layout::panel_bytes + step * k_step * wide;
        } else {
            return block * 64 * wide + step * 32 / wide * layout::panel_bytes + step * 32 % wide;
        }
    }

    IMBREX_KERNEL std::uint64_t descriptor(int block, int step) const {
        const std::uint32_t low = low_word + static_cast<std::uint32_t>(byte_offset(block, step) >> 4);
        return static_cast<std::uint64_t>(high_word) << 32 | low;
    }
};

template <class T>
inline constexpr bool is_fragment = false;
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
inline constexpr bool is_fragment<fragment<T, Rows, Columns, Warps, Layout>> = true;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// CuTe takes the accumulators one by one, 32-bit integers as unsigned.
IMBREX_KERNEL float& wgmma_register(float& value) {
    return value;
}
IMBREX_KERNEL std::uint32_t& wgmma_register(std::int32_t& value) {
    return reinterpret_cast<std::uint32_t&>(value);
}

template <class Instruction, class C, int Strips, int... I, class... Operands>
IMBREX_KERNEL void run_wgmma(C (&c)[Strips][4], bool accumulate, std::integer_sequence<int, I...>,
                             const Operands&... operands) {
    Instruction::fma(operands..., wgmma_register(c[I / 4][I % 4])...,
                     accumulate ? cute::SM90::GMMA::ScaleOut::One : cute::SM90::GMMA::ScaleOut::Zero);
}

#endif

// Keeps the compiler from moving ordinary uses of these registers across: it does not know that wgmma goes on writing
// (or reading) them after the instruction.
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL void wgmma_guard(fragment<T, Rows, Columns, Warps, Layout>& registers) {
    using fragment_type = fragment<T, Rows, Columns, Warps, Layout>;
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < fragment_type::strips; ++strip) {
            if constexpr (std::is_same_v<T, float>) {
#pragma unroll
                for (int item = 0; item < 4; ++item) asm volatile("" : "+f"(registers.values[block][strip][item]));
            } else if constexpr (sizeof(T) == 4) {
#pragma unroll
                for (int item = 0; item < 4; ++item) asm volatile("" : "+r"(registers.values[block][strip][item]));
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    std::uint32_t word = registers.word_at(block, strip, half);
                    asm volatile("" : "+r"(word));
                    registers.set_word(block, strip, half, word);
                }
            }
        }
    }
}

// If a product replaces the accumulator, the old contents are dead. The instruction still reads them formally, and the
// compiler would carry them around a loop and copy them between instructions in flight, for which ptxas serialises all
// of them. This generates no code.
template <class T, int Rows, int Columns>
IMBREX_KERNEL void forget_unless(bool accumulate, fragment<T, Rows, Columns, 4>& c) {
    fragment<T, Rows, Columns, 4> anything;
#pragma unroll
    for (int block = 0; block < Rows / 64; ++block) {
#pragma unroll
        for (int strip = 0; strip < Columns / 8; ++strip) {
#pragma unroll
            for (int item = 0; item < 4; ++item) {
                T& value = c.values[block][strip][item];
                value = accumulate ? value : anything.values[block][strip][item];
            }
        }
    }
}

// Orders earlier uses of the registers before the following instructions. Every wgmma includes it; between consecutive
// products it costs nothing.
IMBREX_KERNEL void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

// c = a * b, or c += a * b. TransposeA: a is stored as k x m instead of m x k. TransposeB: b is stored as n x k instead
// of k x n.
template <bool TransposeA, bool TransposeB, class Group, class C, int M, int N, class A, class B>
IMBREX_KERNEL void wgmma(const Group&, fragment<C, M, N, 4>& c, const A& a, const B& b, bool accumulate,
                         source = source::current()) {
    static_assert(has_wgmma && Group::warps == 4, "imbrex: wgmma needs sm_90a and a warpgroup");
    using right = wgmma_operand<B, !TransposeB>;
    using left_element = std::remove_const_t<typename A::element>;
    using table_entry = gmma<left_element, typename right::element, N>;
    static_assert(!has_wgmma || table_entry::exists,
                  "imbrex: no wgmma for these element types and columns: both bf16, both fp16, or any of e4m3 and e5m2 "
                  "with columns a multiple of 8 up to 256; both int8 with columns 8, 16, 24 or a multiple of 16");
    static_assert(right::mn == N, "imbrex: the B operand of wgmma must have the accumulator's columns");
    if constexpr (has_wgmma && table_entry::exists) {
        static_assert(std::is_same_v<C, typename table_entry::accumulator>,
                      "imbrex: wgmma accumulates in float, or in int32 for int8");
        using all_registers = std::make_integer_sequence<int, N / 2>;
        const right b_operand(b);
        constexpr int steps = right::k / right::k_step;
        if constexpr (is_fragment<A>) {
            static_assert(!TransposeA && A::held == register_layout::row_major && A::warps == 4,
                          "imbrex: an A operand of wgmma in registers must be a row-major tile of a warpgroup");
            static_assert(A::rows == M && A::columns == right::k,
                          "imbrex: the A operand of wgmma must have the accumulator's rows and B's "
                          "inner dimension");
            using instruction = typename table_entry::template registers<false, !TransposeB>;
            forget_unless(accumulate, c);
            wgmma_guard(c);
            wgmma_guard(const_cast<A&>(a));
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < steps; ++step) {
#pragma unroll
                for (int block = 0; block < M / 64; ++block) {
                    run_wgmma<instruction>(c.values[block], accumulate || step > 0, all_registers{},
                                           a.word_at(block, 2 * step, 0), a.word_at(block, 2 * step, 1),
                                           a.word_at(block, 2 * step + 1, 0), a.word_at(block, 2 * step + 1, 1),
                                           b_operand.descriptor(0, step));
                }
            }
        } else {
            using left = wgmma_operand<A, TransposeA>;
            static_assert(left::mn == M && left::k == right::k,
                          "imbrex: the A operand of wgmma must have the accumulator's rows and B's "
                          "inner dimension");
            using instruction = typename table_entry::template shared<TransposeA, !TransposeB>;
            const left a_operand(a);
            forget_unless(accumulate, c);
            wgmma_guard(c);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < steps; ++step) {
#pragma unroll
                for (int block = 0; block < M / 64; ++block) {
                    run_wgmma<instruction>(c.values[block], accumulate || step > 0, all_registers{},
                                           a_operand.descriptor(block, step), b_operand.descriptor(0, step));
                }
            }
        }
    }
}

// Commits a group of instructions; waits until at most Pending groups are in flight.
template <class Group>
IMBREX_KERNEL void wgmma_commit(const Group&, source = source::current()) {
    static_assert(has_wgmma && Group::warps == 4, "imbrex: wgmma needs sm_90a and a warpgroup");
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}
template <int Pending, class Group>
IMBREX_KERNEL void wgmma_wait(const Group&, source = source::current()) {
    static_assert(has_wgmma && Group::warps == 4, "imbrex: wgmma needs sm_90a and a warpgroup");
    static_assert(Pending >= 0 && Pending <= 7, "imbrex: wgmma_wait leaves 0 to 7 groups under way");
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(Pending) : "memory");
}

}  // namespace imbrex::hw
