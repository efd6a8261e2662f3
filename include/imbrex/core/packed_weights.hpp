// The prepacked, interleaved layout of quantised weights (int8, e4m3, int4, MXFP4): elements are in the order in which
// the 128 threads of a warpgroup hold the A operand of wgmma, so each thread loads one 16-byte chunk, and their bits
// are placed so that a few instructions dequantise them to 16-bit floats (dequantize in American spelling). The host
// packer, the device and the host world share this one description.
//
// A unit is 2 KB: 16 bytes for each of 128 threads, in order. It holds 64 rows and as many columns as fit: 64 of 4-bit
// elements, 32 of 8-bit ones. The elements of a thread come in pairs, (row, column) and (row, column + 1), in the order
// of its registers: rows g and g + 8 of the first 8 columns, then of the next 8, and so on. A word has 4 pairs, or 2 of
// 8-bit elements.
//
// A field is the form of an element in a 16-bit half from which a float is made. A pair of fields is one word.
//
//      int4    n + 8 in the lowest 4 bits: as a float, n + 8 times the smallest subnormal. The same holds at any bit
//              position within the mantissa and the last exponent bit. Multiplied by 2^127 (fp16: 2^15), minus
//              8 / packed_int4_divisor, it is n / packed_int4_divisor
//      int8    two's complement in the lowest 8 bits. ORed into the bits of 128 (fp16: 1024), the lower 7 bits give
//              128 + their value; the sign bit gives 128 or 256
//      e2m1    sign in the sign, the other bits in the last two exponent bits and the first mantissa bit: a float that
//              is 2^126 (fp16: 2^14) times too small. The multiplication that corrects it also applies the scale
//      e4m3    likewise: sign in the sign, the other bits in the last four exponent bits and the first three mantissa
//              bits. 2^120 (fp16: 2^8) times too small. NaN would become 480 and is rejected by the packer
//
// A pair of fields is a word rotated and masked, or that XOR the word shifted and masked. In the second case bits of
// other pairs overlap it, and the packer flips its bits where those are ones. (Four pairs of e2m1 fields do not fit
// side by side in a word under any rotation. This way they take four shifts and four logic instructions.)
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/packed_integer.hpp>
#include <imbrex/core/packed_level.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace imbrex {

// Packable formats: int8, e4m3, two per byte int4x2 and e2m1x2, the integers of core/packed_integer.hpp and
// the levels of core/packed_level.hpp.
template <class Format>
concept packable =
    std::is_same_v<Format, std::int8_t> || std::is_same_v<Format, e4m3> || std::is_same_v<Format, int4x2> ||
    std::is_same_v<Format, e2m1x2> || is_packed_integer<Format> || is_packed_level<Format>;

// Rows of a unit, and columns for which every format has whole units.
inline constexpr int packed_rows = 64;
inline constexpr int packed_columns = 64;

template <packable Format>
struct packed_unit {
    static constexpr int bits = bits_of<Format>;
    static constexpr int columns = 256 / bits;
    static constexpr int words = 512;
    static constexpr int words_per_thread = 4;
    static constexpr int pairs_per_word = 16 / bits;
    static constexpr int high_words_per_thread = 0;
};
// A unit of 4-bit elements, followed by the high bits: a word per bit for each thread.
template <int Bits, int ZeroPoint>
struct packed_unit<packed_integer<Bits, ZeroPoint>> {
    static constexpr int bits = 4;
    static constexpr int columns = 64;
    static constexpr int words = 128 * Bits;
    static constexpr int words_per_thread = 4;
    static constexpr int pairs_per_word = 4;
    static constexpr int high_words_per_thread = Bits - 4;
};

// The coordinate of an element: the word in its unit, the pair in that word, and first or second of the pair.
struct packed_coord {
    int word;
    int pair;
    int second;
};
template <packable Format>
IMBREX_FN constexpr packed_coord packed_coord_of(int row, int column) {
    using unit = packed_unit<Format>;
    const int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    const int pair = column / 8 * 2 + row / 8 % 2;
    return {thread * unit::words_per_thread + pair / unit::pairs_per_word, pair % unit::pairs_per_word, column % 2};
}

// The number of an element's pair among those of its thread, and the first word of the thread's high bits.
template <packable Format>
IMBREX_FN constexpr int packed_pair_of_thread(packed_coord at) {
    return at.word % packed_unit<Format>::words_per_thread * packed_unit<Format>::pairs_per_word + at.pair;
}
template <packable Format>
IMBREX_FN constexpr int packed_high_word(packed_coord at) {
    return 512 + at.word / packed_unit<Format>::words_per_thread * packed_unit<Format>::high_words_per_thread;
}

IMBREX_FN constexpr std::uint32_t rotate_right(std::uint32_t word, int by) {
    return by == 0 ? word : word >> by | word << (32 - by);
}

// How a pair of fields is extracted from a word: rotate right, XOR the word shifted left by `over`, mask.
struct packed_pair {
    int rotation;
    int over;  // left shift; 0: no overlap
    std::uint32_t mask;
};

// The fewest instructions, found by exhaustive search. Left shifts are better than rotations: the compiler can turn
// them into multiplications if the ALU pipe is the bottleneck.
template <packable Format, class Float>
IMBREX_FN constexpr packed_pair packed_pair_of(int pair) {
    static_assert(std::is_same_v<Float, bf16> || std::is_same_v<Float, fp16>,
                  "imbrex: packed weights are made into bf16 or fp16");
    constexpr bool brain = std::is_same_v<Float, bf16>;
    if constexpr (std::is_same_v<Format, std::int8_t>) {
        return {8 * pair, 0, 0x00ff00ffU};
    } else if constexpr (std::is_same_v<Format, int4x2> || is_packed_integer<Format> || is_packed_level<Format>) {
        return {4 * pair, 0, 0x000f000fU};
    } else if constexpr (std::is_same_v<Format, e4m3> && brain) {
        return {pair == 0 ? 0 : 8, pair == 0 ? 0 : 4, 0x87f087f0U};
    } else if constexpr (std::is_same_v<Format, e4m3>) {
        return {pair == 0 ? 0 : 25, pair == 0 ? 0 : 1, 0xbf80bf80U};
    } else if constexpr (brain) {
        return {pair == 0 ? 2 : pair == 1 ? 6 : pair == 2 ? 28 : 0, pair == 3 ? 8 : 0, 0x81c081c0U};
    } else {
        return {pair < 2 ? 0 : 4, pair == 0 ? 0 : pair == 1 ? 3 : pair == 2 ? 7 : 10, 0x8e008e00U};
    }
}

// Extracts a pair of fields from a word.
template <packable Format, class Float>
IMBREX_FN constexpr std::uint32_t packed_fields(std::uint32_t word, int pair) {
    const packed_pair how = packed_pair_of<Format, Float>(pair);
    const std::uint32_t over = how.over == 0 ? 0 : word << how.over;
    return (rotate_right(word, how.rotation) ^ over) & how.mask;
}

namespace detail {
// For each bit of each pair of fields, the word that sets this bit and no other bit of any pair. It is the inverse of
// packed_fields, computed by Gaussian elimination, so the two cannot disagree.
template <packable Format, class Float>
struct packed_bits {
    static constexpr int pairs = packed_unit<Format>::pairs_per_word;
    std::uint32_t of[pairs][32] = {};

    constexpr packed_bits() {
        std::uint32_t words[32] = {};
        for (int i = 0; i < 32; ++i) words[i] = 1U << i;
        for (int pair = 0; pair < pairs; ++pair) {
            const std::uint32_t mask = packed_pair_of<Format, Float>(pair).mask;
            for (int bit = 0; bit < 32; ++bit) {
                if ((mask >> bit & 1U) != 0) of[pair][bit] = taken(words, pair, bit);
            }
        }
        for (int pair = 0; pair < pairs; ++pair) {
            for (int bit = 0; bit < 32; ++bit) clear(pair, bit);
        }
    }

  private:
    static constexpr bool has(std::uint32_t word, int pair, int bit) {
        return (packed_fields<Format, Float>(word, pair) >> bit & 1U) != 0;
    }
    // Takes the first word that has a bit and eliminates the bit from the others.
    static constexpr std::uint32_t taken(std::uint32_t (&words)[32], int pair, int bit) {
        std::uint32_t found = 0;
        for (std::uint32_t& word : words) {
            if (!has(word, pair, bit)) continue;
            if (found == 0) {
                found = word;
                word = 0;
            } else {
                word ^= found;
            }
        }
        return found;
    }
    // Eliminates a bit from the words already taken.
    constexpr void clear(int pair, int bit) {
        const std::uint32_t own = of[pair][bit];
        for (auto& of_pair : of) {
            for (std::uint32_t& word : of_pair) {
                if (own != 0 && word != own && has(word, pair, bit)) word ^= own;
            }
        }
    }
};
template <packable Format, class Float>
inline constexpr packed_bits<Format, Float> bits_packed{};
}  // namespace detail

// Inserts a pair of fields: the XOR of all pairs is the word.
template <packable Format, class Float>
constexpr std::uint32_t pack_fields(std::uint32_t fields, int pair) {
    // Integer fields do not overlap.
    constexpr bool is_small = is_packed_integer<Format> || is_packed_level<Format>;
    if constexpr (std::is_same_v<Format, std::int8_t> || std::is_same_v<Format, int4x2> || is_small) {
        return rotate_right(fields, (32 - packed_pair_of<Format, Float>(pair).rotation) % 32);
    }
    std::uint32_t word = 0;
    for (; fields != 0; fields &= fields - 1) {
        word ^= detail::bits_packed<Format, Float>.of[pair][std::countr_zero(fields)];
    }
    return word;
}

// The field of an element from its bits: the byte of an int8 or e4m3, the four bits of the others.
template <packable Format, class Float>
IMBREX_FN constexpr std::uint32_t packed_field_of(std::uint32_t bits) {
    if constexpr (std::is_same_v<Format, std::int8_t>) {
        return bits & 0xffU;
    } else if constexpr (std::is_same_v<Format, e4m3>) {
        return (bits & 0x80U) << 8 | (bits & 0x7fU) << (Float::format.mantissa_bits - 3);
    } else if constexpr (std::is_same_v<Format, int4x2>) {
        return (bits & 0xfU) ^ 0x8U;
    } else if constexpr (is_packed_integer<Format> || is_packed_level<Format>) {
        return bits & 0xfU;
    } else {
        constexpr int mantissa_bits = Float::format.mantissa_bits;
        return (bits & 0x8U) << 12 | (bits & 0x7U) << (mantissa_bits - 1);
    }
}

// int4 values are dequantised divided by this: exact, and with fewer instructions than the values themselves.
template <class Float>
inline constexpr float packed_int4_divisor = std::is_same_v<Float, bf16> ? 64 : 512;
// What the dequantised values of a format are divided by.
template <packable Format, class Float>
inline constexpr float packed_divisor = std::is_same_v<Format, int4x2> ||
                                                (is_packed_integer<Format> && bits_of<Format> == 4)
                                            ? packed_int4_divisor<Float>
                                            : 1.0f;

// Dequantises a pair from a word. `Pairs` provides two-wide arithmetic: subtract(a, b), multiply(a, b), multiply_add(a,
// b, c), rounded once, and merge(a, mask, b) = (a & mask) | b, which the device has as one instruction. `other` is the
// scale of e2m1, from packed_scale_pair, or the high bits of packed_integer, from packed_high_fields. For levels,
// look_up<Format>(nibbles) gives the levels of four nibbles in four bytes, and pair_of(a, b, i) a word with byte i of each
// in the low bytes of its halves.
template <packable Format, class Float, class Pairs>
IMBREX_FN constexpr std::uint32_t packed_floats(std::uint32_t word, int pair,
                                                [[maybe_unused]] std::uint32_t other = 0) {
    if constexpr (std::is_same_v<Format, e2m1x2>) {
        return Pairs::multiply(packed_fields<Format, Float>(word, pair), other);
    } else if constexpr (is_packed_integer<Format> && bits_of<Format> > 4) {
        // The low bits of the power of two whose last mantissa bit is worth 1 are the integer.
        constexpr std::uint32_t base = std::is_same_v<Float, bf16> ? 0x43004300U : 0x64006400U;
        const std::uint32_t low = Pairs::merge(word >> (4 * pair), 0x000f000fU, base);
        return Pairs::subtract(Pairs::merge(other, packed_high_mask<Format>, low),
                               base | Format::zero_point * 0x10001U);
    } else if constexpr (std::is_same_v<Format, e4m3>) {
        constexpr std::uint32_t mend = std::is_same_v<Float, bf16> ? 0x7b807b80U : 0x5c005c00U;  // 2^120, 2^8
        return Pairs::multiply(packed_fields<Format, Float>(word, pair), mend);
    } else if constexpr (std::is_same_v<Format, int4x2> || is_packed_integer<Format>) {
        constexpr bool brain = std::is_same_v<Float, bf16>;
        // Every other pair needs no shift: it comes 16 times larger, and its factor is 16 times smaller.
        const std::uint32_t fields = (word >> (pair / 2 * 8)) & (0x000f000fU << (pair % 2 * 4));
        const std::uint32_t first = brain ? 0x7f007f00U : 0x78007800U, second = brain ? 0x7d007d00U : 0x68006800U;
        const std::uint32_t factor = pair % 2 == 0 ? first : second;
        if constexpr (is_packed_integer<Format>) return Pairs::multiply(fields, factor);
        return Pairs::multiply_add(fields, factor, brain ? 0xbe00be00U : 0xa400a400U);
    } else {
        // The power of two whose last mantissa bit is worth 1.
        constexpr std::uint32_t base = std::is_same_v<Float, bf16> ? 0x43004300U : 0x64006400U;
        std::uint32_t turned = 0;
        if constexpr (is_packed_level<Format>) {
            turned = Pairs::pair_of(Pairs::template look_up<Format>(word & 0xffffU),
                                    Pairs::template look_up<Format>(word >> 16), pair);
        } else {
            turned = word >> packed_pair_of<Format, Float>(pair).rotation;
        }
        return Pairs::subtract(Pairs::merge(turned, 0x007f007fU, base), Pairs::merge(turned, 0x00800080U, base));
    }
}

// Scales of integers: one per row and group. Those of rows g, g + 8 and so on are adjacent, as a lane holds them.
inline constexpr int packed_scales_per_lane = packed_rows / 8;
IMBREX_FN constexpr int packed_row_offset(int row) {
    return row % 8 * packed_scales_per_lane + row / 8;
}

// Scales of e2m1: one per row and 32 columns; a word holds two rows (g, g + 8) and 64 columns. Each is the exponent of
// the factor for the fields. Those of row g are at the exponent positions of two floats, for columns 0 to 31 and 32 to
// 63; those of row g + 8 are shifted by 8 bits. The four words of rows g, g + 16, g + 32 and g + 48 are adjacent, so a
// lane that needs them all loads them at once.
inline constexpr int packed_scale_columns = 32;
inline constexpr int packed_scale_words = 32;  // for 64 rows and 64 columns
IMBREX_FN constexpr packed_coord packed_scale_coord_of(int row, int column) {
    return {row % 8 * 4 + row / 16, column / packed_scale_columns * 2 + row / 8 % 2, 0};
}

// The scales of one row as two floats, for columns 0 to 31 and 32 to 63, and one of them broadcast to both halves.
template <class Float>
IMBREX_FN constexpr std::uint32_t packed_scales_of_row(std::uint32_t word, int half) {
    constexpr std::uint32_t exponents = Float::format.bias == 15 ? 0x7c007c00U : 0x7f807f80U;
    return rotate_right(word, 8 * half) & exponents;
}
template <class Float>
IMBREX_FN constexpr std::uint32_t packed_scale_pair(std::uint32_t word, int which) {
    const std::uint32_t both = packed_scales_of_row<Float>(word, which % 2);
    return which / 2 == 0 ? (both & 0xffffU) | both << 16 : both >> 16 | (both & 0xffff0000U);
}

// Inserts one scale, given by its exponent, into its word.
template <class Float>
constexpr std::uint32_t pack_scale(std::uint32_t exponent, int which) {
    return rotate_right(exponent << (Float::format.mantissa_bits + which / 2 * 16), (32 - which % 2 * 8) % 32);
}

// The largest supported scale, 2, and the exponent of the combined factor. A scale too small for fp16 yields zeros.
inline constexpr int packed_scale_max = 128;
template <class Float>
IMBREX_FN constexpr std::uint32_t packed_scale_of(ue8m0 scale) {
    constexpr int bias = Float::format.bias;
    const int exponent = static_cast<int>(scale.bits) - float_bias + (bias - 1) + bias;
    return static_cast<std::uint32_t>(exponent < 0 ? 0 : exponent);
}

}  // namespace imbrex
