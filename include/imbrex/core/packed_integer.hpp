// Weights of 4, 5 or 6 bits, as in the K-quants of GGUF files: an unsigned number q, 0 to 2^Bits - 1, that stands for
// q - ZeroPoint. Packed (core/packed_weights.hpp), the low 4 bits of 64 columns are a unit as of int4; it is followed by
// the high bits, a word per bit and thread:
//
//      high bits of pair i       1 bit     bits i and i + 16 of the word
//      of a thread, 0 to 15      2 bits    bits 2 (i % 8) and 2 (i % 8) + 16, and the next ones, of word i / 8
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>

#include <cstdint>

namespace imbrex {

template <int Bits, int ZeroPoint>
struct packed_integer {
    static_assert(Bits >= 4 && Bits <= 6, "imbrex: a packed integer has 4, 5 or 6 bits");
    static_assert(ZeroPoint >= 0 && ZeroPoint < (1 << Bits) && (Bits > 4 || ZeroPoint == 0),
                  "imbrex: the zero point of a packed integer is one of its values, and 0 with 4 bits");
    static constexpr std::uint32_t zero_point = ZeroPoint;

    std::uint8_t bits;  // q

    static constexpr packed_integer from_bits(std::uint8_t bits) {
        return {static_cast<std::uint8_t>(bits & ((1U << Bits) - 1))};
    }
    explicit constexpr operator float() const { return static_cast<float>(bits) - ZeroPoint; }
};

template <int Bits, int ZeroPoint>
struct element_traits<packed_integer<Bits, ZeroPoint>> : element_description<packed_integer<Bits, ZeroPoint>, Bits> {
    IMBREX_FN static constexpr const char* name() { return Bits == 4 ? "uint4" : Bits == 5 ? "5 bits" : "6 bits"; }
};

template <class Format>
inline constexpr bool is_packed_integer = false;
template <int Bits, int ZeroPoint>
inline constexpr bool is_packed_integer<packed_integer<Bits, ZeroPoint>> = true;

// The high bits of both elements of a pair, at their places in an integer of 16 bits.
template <class Format>
inline constexpr std::uint32_t packed_high_mask = bits_of<Format> == 6 ? 0x00300030U : 0x00100010U;

// Shifts the high bits of a thread's pair to their places; bits of other pairs remain outside the mask.
template <class Format>
IMBREX_FN constexpr std::uint32_t packed_high_fields(const std::uint32_t* words, int pair) {
    constexpr int width = bits_of<Format> - 4, pairs_per_word = 16 / width;
    const int shift = pair % pairs_per_word * width - 4;
    const std::uint32_t word = words[pair / pairs_per_word];
    return shift >= 0 ? word >> shift : word << -shift;
}

// The inverse: inserts the high bits of q, which is the first or second element of a pair. The words start as zeros.
template <class Format>
constexpr void pack_high_bits(std::uint32_t* words, int pair, int second, std::uint32_t q) {
    constexpr int width = bits_of<Format> - 4, pairs_per_word = 16 / width;
    words[pair / pairs_per_word] |= (q >> 4) << (pair % pairs_per_word * width + 16 * second);
}

}  // namespace imbrex
