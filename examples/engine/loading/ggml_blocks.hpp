// ggml's quantised blocks. Every format divides a row into blocks and a block into groups of 16 or 32 elements;
//
//     element = scale of the group * unsigned value + offset of the group
//
// `ggml_block<type>::unpack` brings a block to this form: one byte per element, scale and offset per 16 elements. It is
// exact: fp16 scales have 11 bits, scales of groups at most 8 and values at most 8, and a float holds the products.
// to_floats (weights.hpp) and the CPU's GEMM (model/cpu_block_gemm.cpp) share it. All functions are inlined, since the
// two are compiled for different targets.
//
//     type     elements  bytes  content                                                             values
//     q4_0     32        18     fp16 d; 16 bytes of nibbles                                         d * (q - 8)
//     q4_1     32        20     fp16 d, m; 16 bytes of nibbles                                      d * q + m
//     q5_0     32        22     fp16 d; 32 high bits; 16 bytes of nibbles                           d * (q - 16)
//     q5_1     32        24     fp16 d, m; 32 high bits; 16 bytes of nibbles                        d * q + m
//     q8_0     32        34     fp16 d; 32 signed bytes                                             d * q
//     q2_k     256       84     16 bytes of 4-bit scales s and minimums m; 2-bit q; fp16 d, e       d * s * q - e * m
//     q3_k     256       110    high bits; 2-bit q; 6-bit scales; fp16 d                            d * (s - 32) * (q - 4)
//     q4_k     256       144    fp16 d, e; 6-bit s and m; nibbles                                   d * s * q - e * m
//     q5_k     256       176    fp16 d, e; 6-bit s and m; high bits; nibbles                        d * s * q - e * m
//     q6_k     256       210    nibbles; 2-bit high parts; signed bytes s; fp16 d                   d * s * (q - 32)
//     iq4_nl   32        18     fp16 d; 16 bytes of nibbles                                         d * levels[q]
//     iq4_xs   256       136    fp16 d; 6-bit s; nibbles                                            d * (s - 32) * levels[q]
//     mxfp4    32        17     power of two d; 16 bytes of nibbles (e2m1)                          d * e2m1[q]
//
// The nibbles of 32 elements: byte i has element i in its low bits and element i + 16 in its high bits; in q4_k and
// q5_k, of 64 elements, i and i + 32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/loading/weight_type.hpp"

namespace imbrex::engine {

inline constexpr int unpacked_group = 16;  // elements per scale of an unpacked block

namespace ggml {

template <class T>
[[gnu::always_inline]] inline T read(const std::byte* from) {  // data in files may be unaligned
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

[[gnu::always_inline]] inline float from_half(std::uint16_t bits) {
#if defined(__F16C__) || defined(__aarch64__)
    return static_cast<float>(std::bit_cast<_Float16>(bits));
#else
    const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, magnitude = std::uint32_t(bits & 0x7fffu) << 13;
    if (magnitude >= 31u << 23) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
    // Exponent and mantissa of a float with the bias of fp16; the product corrects the bias, for subnormals too.
    const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
#endif
}

[[gnu::always_inline]] inline float half_at(const std::byte* from) {
    return from_half(read<std::uint16_t>(from));
}

// One scale and one offset for Count elements.
template <int Count>
[[gnu::always_inline]] inline void set(float* scales, float* offsets, float scale, float offset) {
    for (int i = 0; i < Count / unpacked_group; ++i) {
        scales[i] = scale;
        offsets[i] = offset;
    }
}

// Values of Half bytes: low nibbles, then high nibbles.
template <int Half>
[[gnu::always_inline]] inline void nibbles(const std::byte* from, std::uint8_t* values) {
    std::uint8_t bytes[Half];
    std::memcpy(bytes, from, Half);
    for (int i = 0; i < Half; ++i) {
        values[i] = bytes[i] & 15;
        values[i + Half] = bytes[i] >> 4;
    }
}

// The same with a fifth bit: bit i of the 32 high bits belongs to element i.
[[gnu::always_inline]] inline void nibbles_with_high_bits(const std::byte* high, const std::byte* from,
                                                          std::uint8_t* values) {
    nibbles<16>(from, values);
    const auto bits = read<std::uint32_t>(high);
    for (int i = 0; i < 32; ++i) values[i] |= static_cast<std::uint8_t>((bits >> i & 1) << 4);
}

// The levels of iq4_nl and iq4_xs, plus 128.
inline constexpr std::uint8_t nonlinear_levels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                      129, 141, 153, 166, 181, 197, 217, 241};
// The values of e2m1, doubled, plus 12.
inline constexpr std::uint8_t e2m1_levels[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

[[gnu::always_inline]] inline void look_up(const std::uint8_t (&levels)[16], std::uint8_t* values, int count) {
    for (int i = 0; i < count; ++i) values[i] = levels[values[i]];
}

// The eight 6-bit scales and minimums of q4_k and q5_k, in 12 bytes: the low 6 bits of bytes 0 to 7 are scales and
// minimums 0 to 3; the nibbles of bytes 8 to 11 with the high bits of bytes 0 to 7 are 4 to 7.
[[gnu::always_inline]] inline void scales_and_minimums(const std::byte* from, float d, float minimum_scale,
                                                       float* scales, float* offsets) {
    const auto first = read<std::uint32_t>(from), second = read<std::uint32_t>(from + 4);
    const auto third = read<std::uint32_t>(from + 8);
    const std::uint32_t packed[4] = {first & 0x3f3f3f3fu, (third & 0x0f0f0f0fu) | (first >> 2 & 0x30303030u),
                                     second & 0x3f3f3f3fu, (third >> 4 & 0x0f0f0f0fu) | (second >> 2 & 0x30303030u)};
    std::uint8_t bytes[16];
    std::memcpy(bytes, packed, sizeof bytes);
    for (int i = 0; i < 16; ++i) {
        scales[i] = d * static_cast<float>(bytes[i / 2]);
        offsets[i] = -minimum_scale * static_cast<float>(bytes[8 + i / 2]);
    }
}

}  // namespace ggml

template <weight_type Type>
struct ggml_block;

template <>
struct ggml_block<weight_type::q4_0> {
    static constexpr int elements = 32, bytes = 18;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from);
        ggml::set<32>(scales, offsets, d, -8 * d);
        ggml::nibbles<16>(from + 2, values);
    }
};

template <>
struct ggml_block<weight_type::q4_1> {
    static constexpr int elements = 32, bytes = 20;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        ggml::set<32>(scales, offsets, ggml::half_at(from), ggml::half_at(from + 2));
        ggml::nibbles<16>(from + 4, values);
    }
};

template <>
struct ggml_block<weight_type::q5_0> {
    static constexpr int elements = 32, bytes = 22;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from);
        ggml::set<32>(scales, offsets, d, -16 * d);
        ggml::nibbles_with_high_bits(from + 2, from + 6, values);
    }
};

template <>
struct ggml_block<weight_type::q5_1> {
    static constexpr int elements = 32, bytes = 24;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        ggml::set<32>(scales, offsets, ggml::half_at(from), ggml::half_at(from + 2));
        ggml::nibbles_with_high_bits(from + 4, from + 8, values);
    }
};

template <>
struct ggml_block<weight_type::q8_0> {
    static constexpr int elements = 32, bytes = 34;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from);
        ggml::set<32>(scales, offsets, d, -128 * d);
        std::uint8_t all[32];
        std::memcpy(all, from + 2, 32);
        for (int i = 0; i < 32; ++i) values[i] = all[i] ^ 0x80;
    }
};

template <>
struct ggml_block<weight_type::q2_k> {
    static constexpr int elements = 256, bytes = 84;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from + 80), minimum_scale = ggml::half_at(from + 82);
        std::uint8_t both[16], packed[64];
        std::memcpy(both, from, 16);
        std::memcpy(packed, from + 16, 64);
        for (int i = 0; i < 16; ++i) {
            scales[i] = d * static_cast<float>(both[i] & 15);
            offsets[i] = -minimum_scale * static_cast<float>(both[i] >> 4);
        }
        for (int part = 0; part < 8; ++part) {  // of 32 elements
            for (int i = 0; i < 32; ++i) values[32 * part + i] = packed[part / 4 * 32 + i] >> (2 * (part % 4)) & 3;
        }
    }
};

template <>
struct ggml_block<weight_type::q3_k> {
    static constexpr int elements = 256, bytes = 110;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from + 108);
        std::uint8_t high[32], packed[64], bits[12];
        std::memcpy(high, from, 32);
        std::memcpy(packed, from + 32, 64);
        std::memcpy(bits, from + 96, 12);
        for (int i = 0; i < 16; ++i) {
            const int low = bits[i % 8] >> (i / 8 * 4) & 15, top = bits[8 + i % 4] >> (i / 4 * 2) & 3;
            scales[i] = d * static_cast<float>((low | top << 4) - 32);
            offsets[i] = -4 * scales[i];
        }
        for (int part = 0; part < 8; ++part) {
            for (int i = 0; i < 32; ++i) {
                const int low = packed[part / 4 * 32 + i] >> (2 * (part % 4)) & 3, top = high[i] >> part & 1;
                values[32 * part + i] = static_cast<std::uint8_t>(low | top << 2);
            }
        }
    }
};

template <>
struct ggml_block<weight_type::q4_k> {
    static constexpr int elements = 256, bytes = 144;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        ggml::scales_and_minimums(from + 4, ggml::half_at(from), ggml::half_at(from + 2), scales, offsets);
        for (int part = 0; part < 4; ++part) ggml::nibbles<32>(from + 16 + 32 * part, values + 64 * part);
    }
};

template <>
struct ggml_block<weight_type::q5_k> {
    static constexpr int elements = 256, bytes = 176;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        ggml::scales_and_minimums(from + 4, ggml::half_at(from), ggml::half_at(from + 2), scales, offsets);
        std::uint8_t high[32];
        std::memcpy(high, from + 16, 32);
        for (int part = 0; part < 4; ++part) ggml::nibbles<32>(from + 48 + 32 * part, values + 64 * part);
        for (int part = 0; part < 8; ++part) {
            for (int i = 0; i < 32; ++i) {
                values[32 * part + i] |= static_cast<std::uint8_t>((high[i] >> part & 1) << 4);
            }
        }
    }
};

template <>
struct ggml_block<weight_type::q6_k> {
    static constexpr int elements = 256, bytes = 210;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from + 208);
        std::int8_t group[16];
        std::memcpy(group, from + 192, 16);
        for (int i = 0; i < 16; ++i) {
            scales[i] = d * static_cast<float>(group[i]);
            offsets[i] = -32 * scales[i];
        }
        for (int half = 0; half < 2; ++half, values += 128) {
            std::uint8_t low[64], high[32];
            std::memcpy(low, from + 64 * half, 64);
            std::memcpy(high, from + 128 + 32 * half, 32);
            for (int part = 0; part < 4; ++part) {
                for (int i = 0; i < 32; ++i) {
                    const int nibble = low[part % 2 * 32 + i] >> (part / 2 * 4) & 15, top = high[i] >> (2 * part) & 3;
                    values[32 * part + i] = static_cast<std::uint8_t>(nibble | top << 4);
                }
            }
        }
    }
};

template <>
struct ggml_block<weight_type::iq4_nl> {
    static constexpr int elements = 32, bytes = 18;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from);
        ggml::set<32>(scales, offsets, d, -128 * d);
        ggml::nibbles<16>(from + 2, values);
        ggml::look_up(ggml::nonlinear_levels, values, 32);
    }
};

template <>
struct ggml_block<weight_type::iq4_xs> {
    static constexpr int elements = 256, bytes = 136;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from);
        const auto tops = ggml::read<std::uint16_t>(from + 2);
        const auto lows = ggml::read<std::uint32_t>(from + 4);
        for (int part = 0; part < 8; ++part) {
            const int low = static_cast<int>(lows >> (4 * part) & 15), top = tops >> (2 * part) & 3;
            const float scale = d * static_cast<float>((low | top << 4) - 32);
            ggml::set<32>(scales + 2 * part, offsets + 2 * part, scale, -128 * scale);
            ggml::nibbles<16>(from + 8 + 16 * part, values + 32 * part);
        }
        ggml::look_up(ggml::nonlinear_levels, values, 256);
    }
};

template <>
struct ggml_block<weight_type::mxfp4> {
    static constexpr int elements = 32, bytes = 17;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        // 2^(exponent - 127) for values, so 2^(exponent - 128) for doubled ones. The smallest two are subnormal.
        const auto exponent = ggml::read<std::uint8_t>(from);
        const float d = std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent
                                                          : static_cast<std::uint32_t>(exponent - 1) << 23);
        ggml::set<32>(scales, offsets, d, -12 * d);
        ggml::nibbles<16>(from + 1, values);
        ggml::look_up(ggml::e2m1_levels, values, 32);
    }
};

// Calls body(ggml_block<type>{}); the type must be a block's.
template <class Body>
auto with_ggml_block(weight_type type, const Body& body) {
    switch (type) {
        case weight_type::q4_1:
            return body(ggml_block<weight_type::q4_1>{});
        case weight_type::q5_0:
            return body(ggml_block<weight_type::q5_0>{});
        case weight_type::q5_1:
            return body(ggml_block<weight_type::q5_1>{});
        case weight_type::q8_0:
            return body(ggml_block<weight_type::q8_0>{});
        case weight_type::q2_k:
            return body(ggml_block<weight_type::q2_k>{});
        case weight_type::q3_k:
            return body(ggml_block<weight_type::q3_k>{});
        case weight_type::q4_k:
            return body(ggml_block<weight_type::q4_k>{});
        case weight_type::q5_k:
            return body(ggml_block<weight_type::q5_k>{});
        case weight_type::q6_k:
            return body(ggml_block<weight_type::q6_k>{});
        case weight_type::iq4_nl:
            return body(ggml_block<weight_type::iq4_nl>{});
        case weight_type::iq4_xs:
            return body(ggml_block<weight_type::iq4_xs>{});
        case weight_type::mxfp4:
            return body(ggml_block<weight_type::mxfp4>{});
        default:
            return body(ggml_block<weight_type::q4_0>{});
    }
}

}  // namespace imbrex::engine
