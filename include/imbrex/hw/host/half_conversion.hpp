// fp16 to float by the vector unit (x86: F16C, AVX-512; Arm: always). The compiler's vector extensions cannot express
// it, and the integer code of simd_operations::decode, for other processors, takes 3 to 7 times as long.
//
//     half_conversion<Vectors>::to_floats(words)      the fp16 in the low half of each word; the upper half is zero
//     half_conversion<Vectors>::load(pointer)         adjacent fp16 in memory, at any alignment
#pragma once

#include <imbrex/core/fp16.hpp>
#include <imbrex/hw/host/host_gemm.hpp>
#include <imbrex/hw/host/int8_dot.hpp>

#if (defined(__AVX512F__) || (defined(__AVX__) && defined(__F16C__))) && !defined(__CUDACC__)
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(__CUDACC__)
#include <arm_neon.h>
#endif

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

template <class Vectors>
struct half_conversion {
    static constexpr bool exists = false;
};

#if defined(__AVX512F__) && !defined(__CUDACC__)
template <>
struct half_conversion<simd_f32x16> {
    static constexpr bool exists = true;
    [[gnu::always_inline]] static simd_f32x16::vector to_floats(simd_types<simd_f32x16>::words bits) {
        // GCC 12 warns of uninitialised variables in the forms without a mask.
        const auto halves = _mm512_maskz_cvtepi32_epi16(0xffff, simd_bit_cast<__m512i>(bits));
        return simd_bit_cast<simd_f32x16::vector>(_mm512_maskz_cvtph_ps(0xffff, halves));
    }
    [[gnu::always_inline]] static simd_f32x16::vector load(const fp16* from) {
        const auto halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        return simd_bit_cast<simd_f32x16::vector>(_mm512_maskz_cvtph_ps(0xffff, halves));
    }
};
#elif defined(__AVX__) && defined(__F16C__) && !defined(__CUDACC__)
template <>
struct half_conversion<simd_f32x8> {
    static constexpr bool exists = true;
    [[gnu::always_inline]] static simd_f32x8::vector to_floats(simd_types<simd_f32x8>::words bits) {
        const auto all = simd_bit_cast<__m256i>(bits);
        const auto halves = _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extractf128_si256(all, 1));
        return simd_bit_cast<simd_f32x8::vector>(_mm256_cvtph_ps(halves));
    }
    [[gnu::always_inline]] static simd_f32x8::vector load(const fp16* from) {
        const auto halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        return simd_bit_cast<simd_f32x8::vector>(_mm256_cvtph_ps(halves));
    }
};
#elif defined(__aarch64__) && !defined(__CUDACC__)
template <>
struct half_conversion<simd_f32x4> {
    static constexpr bool exists = true;
    [[gnu::always_inline]] static simd_f32x4::vector to_floats(simd_types<simd_f32x4>::words bits) {
        const auto halves = vreinterpret_f16_u16(vmovn_u32(simd_bit_cast<uint32x4_t>(bits)));
        return simd_bit_cast<simd_f32x4::vector>(vcvt_f32_f16(halves));
    }
    [[gnu::always_inline]] static simd_f32x4::vector load(const fp16* from) {
        const auto halves = vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(from)));
        return simd_bit_cast<simd_f32x4::vector>(vcvt_f32_f16(halves));
    }
};
#endif

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
