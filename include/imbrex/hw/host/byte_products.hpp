// The one operation of a vector unit that the compiler's own vectors have no word for: products of bytes, added up by fours.
//
//     byte_products<Vectors>::add(sums, a, b)     sums[i] += a0 b0 + a1 b1 + a2 b2 + a3 b3, of the bytes of word i; a from 0 to 255
//                                                 (to 127 where `offset_of_signed` is 0), b from -127 to 127
//     byte_products<vectors_of_4>::sum_each(s)    the sum of each of four vectors
//
// Arm's sdot is that for signed bytes on both sides, x86's vpdpbusd with an unsigned one. `offset_of_signed` is what a signed byte
// must have added for it to be an `a`. Other processors go by 16-bit numbers.
#pragma once

#include <imbrex/hw/host/matrix_product.hpp>

#include <cstdint>
#include <cstring>

#if defined(__AVX512VNNI__) && !defined(__CUDACC__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD) && !defined(__CUDACC__)
#include <arm_neon.h>
#endif

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

// Vectors of other numbers that are as wide as those of floats.
template <class Vectors>
struct vectors_beside;
#if defined(__AVX512F__)
template <>
struct vectors_beside<vectors_of_16> {
    typedef std::uint32_t words __attribute__((vector_size(64)));
    typedef std::int32_t integers __attribute__((vector_size(64)));
    typedef std::int16_t halves __attribute__((vector_size(64)));
};
#elif defined(__AVX__)
template <>
struct vectors_beside<vectors_of_8> {
    typedef std::uint32_t words __attribute__((vector_size(32)));
    typedef std::int32_t integers __attribute__((vector_size(32)));
    typedef std::int16_t halves __attribute__((vector_size(32)));
};
#else
template <>
struct vectors_beside<vectors_of_4> {
    typedef std::uint32_t words __attribute__((vector_size(16)));
    typedef std::int32_t integers __attribute__((vector_size(16)));
    typedef std::int16_t halves __attribute__((vector_size(16)));
};
#endif

// The bits of one vector as another.
template <class To, class From>
[[gnu::always_inline]] inline To vector_as(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "imbrex: vectors of the same width");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class Vectors>
struct byte_products {
    using words = typename vectors_beside<Vectors>::words;
    using integers = typename vectors_beside<Vectors>::integers;
    using halves = typename vectors_beside<Vectors>::halves;
    static constexpr int offset_of_signed = 128;

    [[gnu::always_inline]] static void add(integers& sums, words a, words b) {
        // 255 * 127 is just small enough for 16 bits.
        const halves low = vector_as<halves>(a & 0x00ff00ffU) * ((vector_as<halves>(b) << 8) >> 8);
        const halves high = vector_as<halves>((a >> 8) & 0x00ff00ffU) * (vector_as<halves>(b) >> 8);
        for (const halves& products : {low, high}) {
            const integers pairs = vector_as<integers>(products);
            sums += (pairs >> 16) + (vector_as<integers>(vector_as<words>(pairs) << 16) >> 16);
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
struct byte_products<vectors_of_16> {
    using words = vectors_beside<vectors_of_16>::words;
    using integers = vectors_beside<vectors_of_16>::integers;
    static constexpr int offset_of_signed = 128;

    [[gnu::always_inline]] static void add(integers& sums, words a, words b) {
        sums = vector_as<integers>(
            _mm512_dpbusd_epi32(vector_as<__m512i>(sums), vector_as<__m512i>(a), vector_as<__m512i>(b)));
    }
};
#elif defined(__ARM_FEATURE_DOTPROD) && !defined(__CUDACC__)
template <>
struct byte_products<vectors_of_4> {
    using words = vectors_beside<vectors_of_4>::words;
    using integers = vectors_beside<vectors_of_4>::integers;
    static constexpr int offset_of_signed = 0;

    [[gnu::always_inline]] static void add(integers& sums, words a, words b) {
        sums = vector_as<integers>(
            vdotq_s32(vector_as<int32x4_t>(sums), vector_as<int8x16_t>(a), vector_as<int8x16_t>(b)));
    }
    [[gnu::always_inline]] static integers sum_each(const integers (&values)[4]) {
        const auto pairs = [](int32x4_t a, int32x4_t b) { return vpaddq_s32(a, b); };
        const auto of = [&](int i) { return vector_as<int32x4_t>(values[i]); };
        return vector_as<integers>(pairs(pairs(of(0), of(1)), pairs(of(2), of(3))));
    }
};
#endif

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
