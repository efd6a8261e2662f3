// Vector operations that unpack ggml's blocks (ggml_blocks.hpp): the compiler's vector extensions, and the processor's
// conversion of fp16 and table look-up. All functions are inlined, since their users are compiled for different targets.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__SSSE3__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace imbrex::engine {

namespace ggml {

template <class T>
[[gnu::always_inline]] inline T read(const std::byte* from) {  // data in files may be unaligned
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

[[gnu::always_inline]] inline float from_half(std::uint16_t bits) {
#if defined(__F16C__)
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#elif defined(__aarch64__)
    return static_cast<float>(std::bit_cast<_Float16>(bits));
#else
    const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, magnitude = std::uint32_t(bits & 0x7fffu) << 13;
    if (magnitude >= 31u << 23) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
    // Exponent and mantissa of a float with the bias of fp16; the product corrects the bias, for subnormals too.
    const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
#endif
}

// Eight fp16 numbers.
using eight_halves = std::uint16_t __attribute__((vector_size(16)));
[[gnu::always_inline]] inline void convert_halves(const eight_halves& halves, float* to) {
#if defined(__F16C__)
    __m128i bits;
    std::memcpy(&bits, &halves, sizeof bits);
    _mm256_storeu_ps(to, _mm256_cvtph_ps(bits));
#else
    for (int i = 0; i < 8; ++i) to[i] = from_half(halves[i]);
#endif
}

[[gnu::always_inline]] inline float half_at(const std::byte* from) {
    return from_half(read<std::uint16_t>(from));
}

// Vectors of the compiler, for local use: the compiler divides them if the processor's are narrower.
template <class T, int Count>
struct vector_of {
    typedef T type __attribute__((vector_size(Count * sizeof(T))));
};
template <int Count>
using byte_vector = typename vector_of<std::uint8_t, Count>::type;
using float_vector = vector_of<float, 16>::type;

template <class Vector>
[[gnu::always_inline]] inline void load(const std::byte* from, Vector& to) {
    std::memcpy(&to, from, sizeof to);
}
template <class Vector>
[[gnu::always_inline]] inline void store(const Vector& from, void* to) {
    std::memcpy(to, &from, sizeof from);
}

// Calls body with the constants 0 ... Count - 1: shifts by constants are fast. The body must be inlined
// (always_inline), or values in registers would go through memory.
template <int Count, class Body>
[[gnu::always_inline]] inline void unroll(const Body& body) {
    [&]<int... Index>(std::integer_sequence<int, Index...>) __attribute__((always_inline)) {
        (body(std::integral_constant<int, Index>{}), ...);
    }
    (std::make_integer_sequence<int, Count>{});
}

// 16 bytes as floats. GCC 12 converts the elements of a vector of bytes one by one.
template <class Byte>
[[gnu::always_inline]] inline void to_floats(const typename vector_of<Byte, 16>::type& bytes, float_vector& to) {
#if defined(__AVX512F__) || defined(__AVX2__)
    __m128i all;
    std::memcpy(&all, &bytes, sizeof all);
    constexpr bool is_signed = std::is_signed_v<Byte>;
#endif
#if defined(__AVX512F__)
    vector_of<std::int32_t, 16>::type integers;
    constexpr __mmask16 every = 0xffff;  // GCC 12 warns of the instructions without a mask
    store(is_signed ? _mm512_maskz_cvtepi8_epi32(every, all) : _mm512_maskz_cvtepu8_epi32(every, all), &integers);
    to = __builtin_convertvector(integers, float_vector);
#elif defined(__AVX2__)
    const auto convert = [](__m128i eight) {
        return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(eight) : _mm256_cvtepu8_epi32(eight));
    };
    store(convert(all), &to);
    store(convert(_mm_srli_si128(all, 8)), reinterpret_cast<char*>(&to) + 32);
#else
    to = __builtin_convertvector(__builtin_convertvector(bytes, vector_of<std::int32_t, 16>::type), float_vector);
#endif
}

// Scales of 16 groups, scale * byte, and offsets that are a multiple of them.
[[gnu::always_inline]] inline void set_scales(const vector_of<std::int8_t, 16>::type& of_groups, float scale,
                                              float offset_factor, float* scales, float* offsets) {
    float_vector all;
    to_floats<std::int8_t>(of_groups, all);
    all *= scale;
    store(all, scales);
    store(all * offset_factor, offsets);
}

// The low and the high nibbles of 16 bytes.
[[gnu::always_inline]] inline void nibbles(const std::byte* from, std::uint8_t* low, std::uint8_t* high) {
    byte_vector<16> both;
    load(from, both);
    store(both & 15, low);
    store(both >> 4, high);
}

// Adds a fifth bit to 16 values: bit i of `bits` belongs to element i.
[[gnu::always_inline]] inline void add_high_bits(std::uint16_t bits, std::uint8_t* values) {
    constexpr std::uint64_t ones = 0x0101010101010101u;
    const vector_of<std::uint64_t, 2>::type repeated{(bits & 255u) * ones, (bits >> 8) * ones};
    constexpr byte_vector<16> mask{1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    byte_vector<16> own, low;
    store(repeated, &own);
    std::memcpy(&low, values, sizeof low);
    byte_vector<16> is_set;
    store((own & mask) == mask, &is_set);
    store(low | (is_set & 16), values);
}

// Nibbles with a fifth bit each.
[[gnu::always_inline]] inline void five_bits(const std::byte* high_bits, const std::byte* from, std::uint8_t* first,
                                             std::uint8_t* second) {
    nibbles(from, first, second);
    add_high_bits(read<std::uint16_t>(high_bits), first);
    add_high_bits(read<std::uint16_t>(high_bits + 2), second);
}

// The levels of iq4_nl and iq4_xs, plus 128.
inline constexpr std::uint8_t nonlinear_levels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                      129, 141, 153, 166, 181, 197, 217, 241};
// The values of e2m1, doubled, plus 12.
inline constexpr std::uint8_t e2m1_levels[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// The levels of 16 nibbles, in place.
[[gnu::always_inline]] inline void look_up(const std::uint8_t (&levels)[16], std::uint8_t* values) {
#if defined(__SSSE3__)
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
    auto* const place = reinterpret_cast<__m128i*>(values);
    _mm_storeu_si128(place, _mm_shuffle_epi8(table, _mm_loadu_si128(place)));
#elif defined(__aarch64__)
    vst1q_u8(values, vqtbl1q_u8(vld1q_u8(levels), vld1q_u8(values)));
#else
    for (int i = 0; i < 16; ++i) values[i] = levels[values[i]];
#endif
}
[[gnu::always_inline]] inline void look_up(const std::uint8_t (&levels)[16], const std::byte* from, std::uint8_t* first,
                                           std::uint8_t* second) {
    nibbles(from, first, second);
    look_up(levels, first);
    look_up(levels, second);
}

// The eight 6-bit scales and minimums of q4_k and q5_k, in 12 bytes: the low 6 bits of bytes 0 to 7 are scales and
// minimums 0 to 3; the nibbles of bytes 8 to 11 with the high bits of bytes 0 to 7 are 4 to 7.
[[gnu::always_inline]] inline void scales_and_minimums(const std::byte* from, float d, float minimum_scale,
                                                       float* scales, float* offsets) {
    const auto first = read<std::uint32_t>(from), second = read<std::uint32_t>(from + 4);
    const auto third = read<std::uint32_t>(from + 8);
    const vector_of<std::uint32_t, 4>::type packed{
        first & 0x3f3f3f3fu, (third & 0x0f0f0f0fu) | (first >> 2 & 0x30303030u), second & 0x3f3f3f3fu,
        (third >> 4 & 0x0f0f0f0fu) | (second >> 2 & 0x30303030u)};
    byte_vector<16> bytes;
    store(packed, &bytes);
    float_vector all;
    to_floats<std::uint8_t>(bytes, all);
    store(__builtin_shufflevector(all, all, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7) * d, scales);
    store(
        __builtin_shufflevector(all, all, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15) * -minimum_scale,
        offsets);
}

}  // namespace ggml

}  // namespace imbrex::engine
