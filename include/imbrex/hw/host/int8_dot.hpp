// The int8 dot product of a vector unit, the one instruction that the compiler's vector extensions cannot express:
// products of bytes, added in groups of four.
//
//     int8_dot<Vectors>::add(sums, a, b)     sums[i] += a0 b0 + a1 b1 + a2 b2 + a3 b3, of the bytes of word i; a from 0
//                                            to 255 (to 127 where `offset_of_signed` is 0), b from -127 to 127
//     int8_dot<simd_f32x4>::sum_each(s)      the sum of each of four vectors
//
// Arm's sdot takes signed bytes on both sides, x86's vpdpbusd an unsigned one. `offset_of_signed` is added to a signed
// byte to make it a valid `a`. Other processors use 16-bit arithmetic.
#pragma once

#include <imbrex/hw/host/host_gemm.hpp>

#include <cstdint>
#include <cstring>

#if defined(__AVX512VNNI__) && !defined(__CUDACC__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD) && !defined(__CUDACC__)
#include <arm_neon.h>
#endif

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

// Vector types of other elements with the same width as the float vectors.
template <class Vectors>
struct simd_types;
#if defined(__AVX512F__)
template <>
struct simd_types<simd_f32x16> {
    typedef std::uint32_t words __attribute__((vector_size(64)));
    typedef std::int32_t integers __attribute__((vector_size(64)));
    typedef std::int16_t halves __attribute__((vector_size(64)));
};
#elif defined(__AVX__)
template <>
struct simd_types<simd_f32x8> {
    typedef std::uint32_t words __attribute__((vector_size(32)));
    typedef std::int32_t integers __attribute__((vector_size(32)));
    typedef std::int16_t halves __attribute__((vector_size(32)));
};
#else
template <>
struct simd_types<simd_f32x4> {
    typedef std::uint32_t words __attribute__((vector_size(16)));
    typedef std::int32_t integers __attribute__((vector_size(16)));
    typedef std::int16_t halves __attribute__((vector_size(16)));
};
#endif

// Reinterprets the bits of a vector.
template <class To, class From>
[[gnu::always_inline]] inline To simd_bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "imbrex: simd_bit_cast needs vectors of the same width");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class Vectors>
struct int8_dot {
    using words = typename simd_types<Vectors>::words;
    using integers = typename simd_types<Vectors>::integers;
    using halves = typename simd_types<Vectors>::halves;
    static constexpr int offset_of_signed = 128;

    [[gnu::always_inline]] static void add(integers& sums, words a, words b) {
        // 255 * 127 still fits in 16 bits.
        const halves low = simd_bit_cast<halves>(a & 0x00ff00ffU) * ((simd_bit_cast<halves>(b) << 8) >> 8);
        const halves high = simd_bit_cast<halves>((a >> 8) & 0x00ff00ffU) * (simd_bit_cast<halves>(b) >> 8);
        for (const halves& products : {low, high}) {
            const integers pairs = simd_bit_cast<integers>(products);
            sums += (pairs >> 16) + (simd_bit_cast<integers>(simd_bit_cast<words>(pairs) << 16) >> 16);
        }
    }
    [[gnu::always_inline]] static integers sum_each(const integers (&values)[4]) requires(sizeof(integers) == 16) {
        const auto pairs = [](integers a, integers b) {
            return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
        };
        return pairs(pairs(values[0], values[1]), pairs(values[2], values[3]));
    }
};
#if defined(__AVX512VNNI__) && !defined(__CUDACC__)
template <>
struct int8_dot<simd_f32x16> {
    using words = simd_types<simd_f32x16>::words;
    using integers = simd_types<simd_f32x16>::integers;
    static constexpr int offset_of_signed = 128;

    [[gnu::always_inline]] static void add(integers& sums, words a, words b) {
        sums = simd_bit_cast<integers>(
            _mm512_dpbusd_epi32(simd_bit_cast<__m512i>(sums), simd_bit_cast<__m512i>(a), simd_bit_cast<__m512i>(b)));
    }
};
#elif defined(__ARM_FEATURE_DOTPROD) && !defined(__CUDACC__)
template <>
struct int8_dot<simd_f32x4> {
    using words = simd_types<simd_f32x4>::words;
    using integers = simd_types<simd_f32x4>::integers;
    static constexpr int offset_of_signed = 0;

    [[gnu::always_inline]] static void add(integers& sums, words a, words b) {
        sums = simd_bit_cast<integers>(
            vdotq_s32(simd_bit_cast<int32x4_t>(sums), simd_bit_cast<int8x16_t>(a), simd_bit_cast<int8x16_t>(b)));
    }
    [[gnu::always_inline]] static integers sum_each(const integers (&values)[4]) {
        const auto pairs = [](int32x4_t a, int32x4_t b) { return vpaddq_s32(a, b); };
        const auto of = [&](int i) { return simd_bit_cast<int32x4_t>(values[i]); };
        return simd_bit_cast<integers>(pairs(pairs(of(0), of(1)), pairs(of(2), of(3))));
    }
};
#endif

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
