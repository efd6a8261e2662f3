// Unpacks eight blocks of MXFP4 at once with AVX-512: four blocks share a vector, where ggml_unpacking.hpp has one in a
// vector of 16 bytes. A third fewer instructions per product.
#pragma once

#if defined(__AVX512BW__)
#define IMBREX_UNPACKS_MXFP4 1

#include <immintrin.h>
#include <cstddef>
#include <cstdint>

#include "engine/loading/ggml_blocks.hpp"

namespace imbrex::engine::ggml {

// The nibbles of four blocks: those of the elements 0 to 15, and of 16 to 31.
[[gnu::always_inline]] inline void four_mxfp4(const std::byte* from, std::uint8_t* first, std::uint8_t* second) {
    constexpr int bytes = ggml_block<weight_type::mxfp4>::bytes;
    const auto at = [&](int block) __attribute__((always_inline)) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + block * bytes + 1));
    };
    __m512i all = _mm512_zextsi128_si512(at(0));
    all = _mm512_inserti32x4(all, at(1), 1);
    all = _mm512_inserti32x4(all, at(2), 2);
    all = _mm512_inserti32x4(all, at(3), 3);
    constexpr __mmask64 every = ~std::uint64_t{0};  // GCC 12 warns of the instructions without a mask
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i levels =
        _mm512_maskz_broadcast_i32x4(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(e2m1_levels)));
    const auto store = [&](const __m512i& nibbles, std::uint8_t* to) __attribute__((always_inline)) {
        _mm512_storeu_si512(to, _mm512_maskz_shuffle_epi8(every, levels, _mm512_and_si512(nibbles, low)));
    };
    store(all, first);
    store(_mm512_maskz_srli_epi16(0xffffffffu, all, 4), second);
}

// The scales of eight blocks, as with_exponent has them.
[[gnu::always_inline]] inline __m256 eight_mxfp4_scales(const std::byte* from) {
    __m128i bytes = _mm_setzero_si128();
    unroll<8>([&](auto i) __attribute__((always_inline)) {
        constexpr int block = ggml_block<weight_type::mxfp4>::bytes;
        bytes = _mm_insert_epi8(bytes, read<std::uint8_t>(from + i * block), i);
    });
    const __m256i exponents = _mm256_cvtepu8_epi32(bytes), one = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, one), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponents);
    const __m256i is_nan = _mm256_cmpeq_epi32(exponents, _mm256_set1_epi32(255));
    const __m256i bits = _mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(exponents, one));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7fc00000), is_nan));
}

}  // namespace imbrex::engine::ggml

#endif
