// A vector of floats from adjacent float, bf16, fp16 or e4m3 in memory, at any alignment. The conversion is exact. fp16 uses
// the vector unit where it converts (half_conversion.hpp), bf16 a shift.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/hw/host/half_conversion.hpp>
#include <imbrex/hw/host/interleaved_weights.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

template <class Vectors, class T>
[[gnu::always_inline]] inline typename Vectors::vector load_as_floats(const T* from) {
    using floats = typename Vectors::vector;
    using words = typename simd_types<Vectors>::words;
    if constexpr (std::is_same_v<T, float>) {
        floats values;
        std::memcpy(&values, from, sizeof values);
        return values;
    } else if constexpr (std::is_same_v<T, fp16> && half_conversion<Vectors>::exists) {
        return half_conversion<Vectors>::load(from);
    } else if constexpr (std::is_same_v<T, e4m3>) {
        typedef std::uint8_t bytes __attribute__((vector_size(sizeof(floats) / 4)));
        bytes bits;
        std::memcpy(&bits, from, sizeof bits);
        return simd_operations<Vectors>::template decode<e4m3>(__builtin_convertvector(bits, words));
    } else {
        static_assert(std::is_same_v<T, fp16> || std::is_same_v<T, bf16>,
                      "imbrex: T must be float, bf16, fp16 or e4m3");
        typedef std::uint16_t halves __attribute__((vector_size(sizeof(floats) / 2)));
        halves bits;
        std::memcpy(&bits, from, sizeof bits);
        const words wide = __builtin_convertvector(bits, words);
        if constexpr (std::is_same_v<T, bf16>) return simd_bit_cast<floats>(wide << 16);
        return simd_operations<Vectors>::template decode<fp16>(wide);
    }
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
