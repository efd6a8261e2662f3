// Upconverts an 8-bit shared tile into a 16-bit one. A lane takes 16 elements at a time, a chunk of one tile and two of
// the other, and keeps their order:
//
//     bytes 0, 1 of a word     one byte permutation spreads them to the low bytes of a pair; a shift, a mask and an
//                              exact multiplication (e4m3), or two merges and a subtraction (int8), make 16-bit floats.
//                              e4m3 to fp16 is one instruction from sm_89 on
//
// Eight lanes access memory together. They take the chunks that become two (four, eight) rows of one panel, so that
// neither the load nor the two stores have bank conflicts: these rows differ modulo 2 for the stores and, where a panel
// of 8-bit elements is wide, in bit 2 for the loads: rows r and r ^ 5.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/cuda/copy_shared.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>
#include <imbrex/hw/cuda/upconvert.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

// A byte permutation whose selectors may replicate the sign of a byte (8 to 15).
template <unsigned Selectors>
IMBREX_KERNEL std::uint32_t permute_signs(std::uint32_t word) {
    std::uint32_t result;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(result) : "r"(word), "n"(Selectors));
    return result;
}

// By the hardware's conversion instruction, which reads either half of a register.
template <int Half>
IMBREX_KERNEL std::uint32_t e4m3x2_to_half2(std::uint32_t word) {
    std::uint32_t result;
    if constexpr (Half == 0) {
        asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tcvt.rn.f16x2.e4m3x2 %0, low;\n\t}"
            : "=r"(result)
            : "r"(word));
    } else {
        asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tcvt.rn.f16x2.e4m3x2 %0, high;\n\t}"
            : "=r"(result)
            : "r"(word));
    }
    return result;
}

// Bytes 0 and 1 of a word (Half 0), or 2 and 3, as 16-bit floats.
template <class To, upconverts_to<To> Stored, int Half>
IMBREX_KERNEL std::uint32_t upconvert_in_order(std::uint32_t word) {
    using pairs = half2_arithmetic<To>;
    // The second byte of each 16 bits is that of the sign.
    const std::uint32_t signs = permute_signs < Half == 0 ? 0x9180U : 0xb3a2U > (word);
    if constexpr (std::is_same_v<Stored, std::int8_t>) {
        return upconvert_int8<To>(signs);
    } else if constexpr (std::is_same_v<To, bf16>) {
        return pairs::multiply((signs << 4) & 0x87f087f0U, 0x7b807b80U);  // 2^120
    } else if constexpr (has_fp8_mma) {
        return e4m3x2_to_half2<Half>(word);
    } else {
        return pairs::multiply((signs << 7) & 0xbf80bf80U, 0x5c005c00U);  // 2^8
    }
}

// A pair times a factor, rounded once.
template <class To>
IMBREX_KERNEL std::uint32_t scale_pair(std::uint32_t pair, float factor) {
    return To::encode_pair(To::decode(static_cast<std::uint16_t>(pair)) * factor,
                           To::decode(static_cast<std::uint16_t>(pair >> 16)) * factor);
}

// Where the chunks of a lane are: `count` of them, in rows from `row` and columns from `column` on.
template <class To>
struct upconversion_chunks {
    using wide = layout_of<To>;
    using element = std::remove_const_t<typename To::element>;
    static constexpr int in_panel = wide::panel_columns / 16;
    static constexpr int rows_at_once = 32 / in_panel;
    static constexpr int panels = To::columns / wide::panel_columns;
    static constexpr bool even = To::rows % rows_at_once == 0 && To::columns % wide::panel_columns == 0;
    static constexpr int units = To::rows * To::columns / 16;
    static constexpr int count = (units + 31) / 32;

    template <bool WidePanels>
    IMBREX_KERNEL static int row(int number) {
        if constexpr (!even) return (number * 32 + lane()) / (To::columns / 16);
        const int first = number / panels * rows_at_once;
        if constexpr (WidePanels && in_panel == 4) return first + (lane() / 8 ^ (lane() / 4 % 2) * 5);
        return first + lane() / in_panel;
    }
    IMBREX_KERNEL static int column(int number) {
        if constexpr (!even) return (number * 32 + lane()) % (To::columns / 16) * 16;
        return number % panels * wide::panel_columns + lane() % in_panel * 16;
    }
};

template <bool Partial, class To, class From, class Finish>
IMBREX_KERNEL void upconvert_rows_shared(const To& to, const From& from, int valid_rows, const Finish& finish) {
    using element = std::remove_const_t<typename To::element>;
    using stored = std::remove_const_t<typename From::element>;
    using chunks = upconversion_chunks<To>;
    constexpr bool wide_panels = layout_of<From>::panel_bytes_wide == 128;
    constexpr int together = chunks::count % 8 == 0 ? 4 : chunks::count % 2 == 0 ? 2 : 1;  // loads in flight
#pragma unroll 1
    for (int first = 0; first < chunks::count; first += together) {
        uint4 loaded[together];
#pragma unroll
        for (int i = 0; i < together; ++i) {
            const int row = chunks::template row<wide_panels>(first + i);
            const bool kept = (chunks::even || row < To::rows) && (!Partial || row < valid_rows);
            loaded[i] =
                kept ? *reinterpret_cast<const uint4*>(place_in_shared(from, row, chunks::column(first + i))) : uint4{};
        }
#pragma unroll
        for (int i = 0; i < together; ++i) {
            const int row = chunks::template row<wide_panels>(first + i);
            if (!chunks::even && row >= To::rows) continue;
            const std::uint32_t words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const auto pair = [&](auto which, int word) {
                    return finish(upconvert_in_order<element, stored, which>(words[2 * half + word]));
                };
                constexpr std::integral_constant<int, 0> low{};
                constexpr std::integral_constant<int, 1> high{};
                *reinterpret_cast<uint4*>(place_in_shared(to, row, chunks::column(first + i) + 8 * half)) = {
                    pair(low, 0), pair(high, 0), pair(low, 1), pair(high, 1)};
            }
        }
    }
}

template <class To, class From, class Finish>
IMBREX_KERNEL void upconvert_shared_with(const To& to, const From& from, int valid_rows, const Finish& finish) {
    static_assert(To::rows == From::rows && To::columns == From::columns && To::columns % 16 == 0,
                  "imbrex: a shared tile is upconverted to one of the same shape, 16 columns at a time");
    __syncwarp();
    if (valid_rows >= To::rows) {
        upconvert_rows_shared<false>(to, from, valid_rows, finish);
    } else {
        upconvert_rows_shared<true>(to, from, valid_rows, finish);
    }
}

template <class To, class From>
IMBREX_KERNEL void upconvert_shared(const warp&, const To& to, const From& from, int valid_rows, source) {
    upconvert_shared_with(to, from, valid_rows, [](std::uint32_t pair) { return pair; });
}
template <class To, class From>
IMBREX_KERNEL void upconvert_shared(const warp&, const To& to, const From& from, int valid_rows, float factor, source) {
    using element = std::remove_const_t<typename To::element>;
    upconvert_shared_with(to, from, valid_rows, [=](std::uint32_t pair) { return scale_pair<element>(pair, factor); });
}

}  // namespace imbrex::hw
