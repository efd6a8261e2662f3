// ggml's quantised blocks. Every format divides a row into blocks and a block into groups of 16 or 32 elements;
//
//     element = scale of the group * unsigned value + offset of the group
//
// and a block is unpacked into this form: one byte per element, scale and offset per 16 elements. This is exact: fp16
// scales have 11 bits, scales of groups at most 8 and values at most 8, and a float holds the products. to_floats
// (weights.hpp) and the CPU's GEMM (model/cpu_block_gemm.cpp) share it.
//
//     ggml_block<type>   of 256 elements   unpack(block, values, scales, offsets)
//                        of 32 elements    values(block, first half, second half), scale(block), offset(block)
//                        highest           the largest unsigned value
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
// Of the nibbles of 32 elements, byte i has element i in its low bits and element i + 16 in its high bits; in q4_k and
// q5_k, of 64 elements, i and i + 32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/loading/ggml_unpacking.hpp"
#include "engine/loading/weight_type.hpp"

namespace imbrex::engine {

inline constexpr int unpacked_group = 16;  // elements per scale of an unpacked block

template <weight_type Type>
struct ggml_block;

namespace ggml {

// Scale and offset of the blocks of 32: fp16 d first, and an offset that is a multiple of it, or fp16 m.
template <int OffsetFactor>
struct with_scale {
    static constexpr bool has_minimum = false, has_half_scale = true;
    static constexpr float offset_factor = OffsetFactor;
    [[gnu::always_inline]] static float scale(const std::byte* from) { return half_at(from); }
    [[gnu::always_inline]] static float offset(const std::byte* from) { return offset_factor * half_at(from); }
};
struct with_scale_and_minimum {
    static constexpr bool has_minimum = true, has_half_scale = true;
    [[gnu::always_inline]] static float scale(const std::byte* from) { return half_at(from); }
    [[gnu::always_inline]] static float offset(const std::byte* from) { return half_at(from + 2); }
};
// mxfp4: 2^(exponent - 127) for values, so 2^(exponent - 128) for doubled ones. The smallest two are subnormal; 255 is NaN.
struct with_exponent {
    static constexpr bool has_minimum = false, has_half_scale = false;
    static constexpr float offset_factor = -12;
    [[gnu::always_inline]] static float scale(const std::byte* from) {
        const std::uint32_t exponent = read<std::uint8_t>(from);
        const std::uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
        return std::bit_cast<float>(exponent == 255 ? 0x7fc00000u : bits);
    }
    [[gnu::always_inline]] static float offset(const std::byte* from) { return offset_factor * scale(from); }
};

}  // namespace ggml

template <>
struct ggml_block<weight_type::q4_0> : ggml::with_scale<-8> {
    static constexpr int elements = 32, bytes = 18, highest = 15;
    [[gnu::always_inline]] static void values(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
        ggml::nibbles(from + 2, first, second);
    }
};

template <>
struct ggml_block<weight_type::q4_1> : ggml::with_scale_and_minimum {
    static constexpr int elements = 32, bytes = 20, highest = 15;
    [[gnu::always_inline]] static void values(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
        ggml::nibbles(from + 4, first, second);
    }
};

template <>
struct ggml_block<weight_type::q5_0> : ggml::with_scale<-16> {
    static constexpr int elements = 32, bytes = 22, highest = 31;
    [[gnu::always_inline]] static void values(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
        ggml::five_bits(from + 2, from + 6, first, second);
    }
};

template <>
struct ggml_block<weight_type::q5_1> : ggml::with_scale_and_minimum {
    static constexpr int elements = 32, bytes = 24, highest = 31;
    [[gnu::always_inline]] static void values(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
        ggml::five_bits(from + 4, from + 8, first, second);
    }
};

template <>
struct ggml_block<weight_type::q8_0> : ggml::with_scale<-128> {
    static constexpr int elements = 32, bytes = 34, highest = 255;
    [[gnu::always_inline]] static void values(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
        ggml::byte_vector<16> low, high;
        ggml::load(from + 2, low);
        ggml::load(from + 18, high);
        ggml::store(low ^ 0x80, first);
        ggml::store(high ^ 0x80, second);
    }
};

template <>
struct ggml_block<weight_type::iq4_nl> : ggml::with_scale<-128> {
    static constexpr int elements = 32, bytes = 18, highest = 241;
    [[gnu::always_inline]] static void values(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
        ggml::look_up(ggml::nonlinear_levels, from + 2, first, second);
    }
};

template <>
struct ggml_block<weight_type::mxfp4> : ggml::with_exponent {
    static constexpr int elements = 32, bytes = 17, highest = 24;
    [[gnu::always_inline]] static void values(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
        ggml::look_up(ggml::e2m1_levels, from + 1, first, second);
    }
};

template <>
struct ggml_block<weight_type::q2_k> {
    static constexpr int elements = 256, bytes = 84, highest = 3;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from + 80), minimum_scale = ggml::half_at(from + 82);
        ggml::byte_vector<16> both;
        ggml::load(from, both);
        ggml::float_vector low, high;
        ggml::to_floats<std::uint8_t>(both & 15, low);
        ggml::to_floats<std::uint8_t>(both >> 4, high);
        ggml::store(low * d, scales);
        ggml::store(high * -minimum_scale, offsets);
        for (int half = 0; half < 2; ++half, values += 128) {
            ggml::byte_vector<32> packed;
            ggml::load(from + 16 + 32 * half, packed);
            ggml::unroll<4>([&](auto part) __attribute__((always_inline)) {
                ggml::store(packed >> (2 * part) & 3, values + 32 * part);
            });
        }
    }
};

template <>
struct ggml_block<weight_type::q3_k> {
    static constexpr int elements = 256, bytes = 110, highest = 7;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from + 108);
        const auto first = ggml::read<std::uint32_t>(from + 96), second = ggml::read<std::uint32_t>(from + 100);
        const auto tops = ggml::read<std::uint32_t>(from + 104);
        constexpr std::uint32_t nibble = 0x0f0f0f0fu, top = 0x30303030u;
        const ggml::vector_of<std::uint32_t, 4>::type packed{
            (first & nibble) | (tops << 4 & top), (second & nibble) | (tops << 2 & top),
            (first >> 4 & nibble) | (tops & top), (second >> 4 & nibble) | (tops >> 2 & top)};
        ggml::vector_of<std::int8_t, 16>::type of_groups;
        ggml::store(packed, &of_groups);
        ggml::set_scales(of_groups - 32, d, -4, scales, offsets);
        ggml::byte_vector<32> high;
        ggml::load(from, high);
        ggml::unroll<2>([&](auto half) __attribute__((always_inline)) {
            ggml::byte_vector<32> low;
            ggml::load(from + 32 + 32 * half, low);
            ggml::unroll<4>([&](auto part) __attribute__((always_inline)) {
                ggml::store((low >> (2 * part) & 3) | (high >> (4 * half + part) & 1) << 2,
                            values + 128 * half + 32 * part);
            });
        });
    }
};

template <>
struct ggml_block<weight_type::q4_k> {
    static constexpr int elements = 256, bytes = 144, highest = 15;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        ggml::scales_and_minimums(from + 4, ggml::half_at(from), ggml::half_at(from + 2), scales, offsets);
        for (int part = 0; part < 4; ++part) {
            ggml::byte_vector<32> both;
            ggml::load(from + 16 + 32 * part, both);
            ggml::store(both & 15, values + 64 * part);
            ggml::store(both >> 4, values + 64 * part + 32);
        }
    }
};

template <>
struct ggml_block<weight_type::q5_k> {
    static constexpr int elements = 256, bytes = 176, highest = 31;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        ggml::scales_and_minimums(from + 4, ggml::half_at(from), ggml::half_at(from + 2), scales, offsets);
        ggml::byte_vector<32> high;
        ggml::load(from + 16, high);
        ggml::unroll<4>([&](auto part) __attribute__((always_inline)) {
            ggml::byte_vector<32> both;
            ggml::load(from + 48 + 32 * part, both);
            ggml::store((both & 15) | (high >> (2 * part) & 1) << 4, values + 64 * part);
            ggml::store((both >> 4) | (high >> (2 * part + 1) & 1) << 4, values + 64 * part + 32);
        });
    }
};

template <>
struct ggml_block<weight_type::q6_k> {
    static constexpr int elements = 256, bytes = 210, highest = 63;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from + 208);
        ggml::vector_of<std::int8_t, 16>::type of_groups;
        ggml::load(from + 192, of_groups);
        ggml::set_scales(of_groups, d, -32, scales, offsets);
        for (int half = 0; half < 2; ++half, values += 128) {
            ggml::byte_vector<32> high, first, second;
            ggml::load(from + 64 * half, first);
            ggml::load(from + 64 * half + 32, second);
            ggml::load(from + 128 + 32 * half, high);
            ggml::store((first & 15) | (high & 3) << 4, values);
            ggml::store((second & 15) | (high >> 2 & 3) << 4, values + 32);
            ggml::store((first >> 4) | (high >> 4 & 3) << 4, values + 64);
            ggml::store((second >> 4) | (high >> 6) << 4, values + 96);
        }
    }
};

template <>
struct ggml_block<weight_type::iq4_xs> {
    static constexpr int elements = 256, bytes = 136, highest = 241;
    [[gnu::always_inline]] static void unpack(const std::byte* from, std::uint8_t* values, float* scales,
                                              float* offsets) {
        const float d = ggml::half_at(from);
        const auto tops = ggml::read<std::uint16_t>(from + 2);
        const auto lows = ggml::read<std::uint32_t>(from + 4);
        for (int part = 0; part < 8; ++part) {
            const int low = static_cast<int>(lows >> (4 * part) & 15), top = tops >> (2 * part) & 3;
            const float scale = d * static_cast<float>((low | top << 4) - 32);
            scales[2 * part] = scales[2 * part + 1] = scale;
            offsets[2 * part] = offsets[2 * part + 1] = -128 * scale;
            ggml::look_up(ggml::nonlinear_levels, from + 8 + 16 * part, values + 32 * part, values + 32 * part + 16);
        }
    }
};

// A block in the order of its elements.
template <class Block>
[[gnu::always_inline]] inline void unpack_block(const std::byte* from, std::uint8_t* values, float* scales,
                                                float* offsets) {
    if constexpr (Block::elements == 32) {
        Block::values(from, values, values + 16);
        scales[0] = scales[1] = Block::scale(from);
        offsets[0] = offsets[1] = Block::offset(from);
    } else {
        Block::unpack(from, values, scales, offsets);
    }
}

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
