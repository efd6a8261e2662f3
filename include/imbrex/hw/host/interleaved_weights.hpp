// Weights as float vectors in the host world. A vector of bytes is loaded and treated as 32-bit words. Each word holds
// several interleaved weights; the first weights of all words form one float vector, the second ones another, and so
// on:
//
//     bf16, 16 words     unit of 32 weights     vector 0: weights 0, 2, 4, ... 30      vector 1: weights 1, 3, ... 31
//     int8               64                     vector 0: 0, 4, ... 60                 ... vector 3: 3, 7, ... 63
//     int4               128                    vector 2 b + h: nibble h of byte b of each word
//
// Deinterleaving is a shift or a mask and moves nothing across lanes, which processors do slowly and compilers do
// badly. Activations are staged in the same interleaved order, once for all weights.
//
// With groups, all weights of a word belong to one group. A deinterleaved vector may be the weights times a power of
// two; x (`x_factor`) or the group scale (`scale_factor`) then contains the inverse.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/half_conversion.hpp>
#include <imbrex/hw/host/host_gemm.hpp>
#include <imbrex/hw/host/int8_dot.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace imbrex::hw {

template <class Vectors>
struct simd_operations {
    using floats = typename Vectors::vector;
    using words = typename simd_types<Vectors>::words;
    using integers = typename simd_types<Vectors>::integers;
    static constexpr int lanes = sizeof(floats) / sizeof(float);
    static constexpr int bytes = sizeof(floats);

    // Calls body with the constants 0 ... Count - 1, so that arrays stay in registers.
    template <int Count, class Body>
    [[gnu::always_inline]] static void unroll(Body body) {
        [&]<int... Index>(std::integer_sequence<int, Index...>) {
            (body(std::integral_constant<int, Index>{}), ...);
        }
        (std::make_integer_sequence<int, Count>{});
    }

    template <class Vector>
    [[gnu::always_inline]] static Vector load(const void* from) {
        Vector values;
        std::memcpy(&values, from, sizeof values);
        return values;
    }
    // The first bytes of a vector, and zeros.
    template <class Vector>
    static Vector load_some(const void* from, int count) {
        Vector values = {};
        std::memcpy(&values, from, static_cast<std::size_t>(count));
        return values;
    }
    // Loads four adjacent elements, for vectors of four floats.
    template <class T>
    [[gnu::always_inline]] static floats upconvert(const T* from) {
        static_assert(lanes == 4, "imbrex: only for vectors of four floats");
        if constexpr (std::is_same_v<T, float>) {
            return load<floats>(from);
        } else {
            using halves = typename simd_types<Vectors>::halves;
            typedef std::uint64_t doubles __attribute__((vector_size(16)));
            const auto some = simd_bit_cast<halves>(doubles{load<std::uint64_t>(from), 0});
            const halves none = {};
            if constexpr (std::is_same_v<T, bf16>) {
                return simd_bit_cast<floats>(__builtin_shufflevector(none, some, 0, 8, 1, 9, 2, 10, 3, 11));
            } else {
                return decode<T>(simd_bit_cast<words>(__builtin_shufflevector(some, none, 0, 8, 1, 9, 2, 10, 3, 11)));
            }
        }
    }
    [[gnu::always_inline]] static floats to_floats(integers values) { return __builtin_convertvector(values, floats); }

    // decode_small_float, vectorised.
    template <class T>
    [[gnu::always_inline]] static floats decode(words bits) {
        constexpr float_format format = T::format;
        constexpr int added = float_mantissa_bits - format.mantissa_bits;
        constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float_bias - format.bias) << float_mantissa_bits;
        constexpr std::uint32_t smallest_normal = rebias + (1U << float_mantissa_bits), sign = format.sign();
        const words magnitude = bits & (sign - 1), shifted = magnitude << added;
        const floats smallest = simd_bit_cast<floats>(words{} + smallest_normal);
        const words subnormal = simd_bit_cast<words>(simd_bit_cast<floats>(shifted + smallest_normal) - smallest);
        words result = select(magnitude < (1U << format.mantissa_bits), subnormal, shifted + rebias);
        if constexpr (format.has_infinity) {
            result = select(magnitude > format.highest, words{} + float_infinity, result);
        }
        result = select(magnitude > format.largest_number(), words{} + float_nan, result);
        return simd_bit_cast<floats>(result | ((bits & sign) << (31 - format.exponent_bits - format.mantissa_bits)));
    }

    // Repeats each value for the consecutive words of its group: for `lanes` groups, the vectors that match their
    // units.
    template <int Times>
    [[gnu::always_inline]] static void spread(floats* to, floats values) {
        to[0] = values;
        spread_all<1, Times>(to);
    }

    // The sum of each of Count vectors. Two vectors become one with half of the summands of each, until no pairs are
    // left, and then one becomes one. The summands of a vector are added in the same order whatever the count is.
    template <int Count>
    [[gnu::always_inline]] static void sum_each(float* to, floats* values) {
        if constexpr (Count > lanes) {
            sum_each<lanes>(to, values);
            sum_each<Count - lanes>(to + lanes, values + lanes);
        } else {
            halve<Count / 2>(values);
            for (int left = lanes / Count; left > 1; left /= 2) {
                values[0] = Vectors::zip_low(values[0], values[0]) + Vectors::zip_high(values[0], values[0]);
            }
            float parts[lanes];
            std::memcpy(parts, values, sizeof parts);
            for (int i = 0; i < Count; ++i) to[i] = parts[i * (lanes / Count)];
        }
    }

  private:
    // Selects by the result of a comparison, which is all ones or all zeros per word.
    template <class Mask>
    [[gnu::always_inline]] static words select(Mask mask, words chosen, words otherwise) {
        const words bits = simd_bit_cast<words>(mask);
        return (chosen & bits) | (otherwise & ~bits);
    }
    template <int Half>
    [[gnu::always_inline]] static void halve(floats* values) {
        if constexpr (Half > 0) {
            unroll<Half>([&](auto i) {
                values[i] =
                    Vectors::zip_low(values[i], values[i + Half]) + Vectors::zip_high(values[i], values[i + Half]);
            });
            halve<Half / 2>(values);
        }
    }
    template <int Have, int Times>
    [[gnu::always_inline]] static void spread_all(floats* values) {
        if constexpr (Have < Times) {
            unroll<Have>([&](auto i) {
                constexpr int from = Have - 1 - i;
                const floats one = values[from];
                values[2 * from] = Vectors::zip_low(one, one);
                values[2 * from + 1] = Vectors::zip_high(one, one);
            });
            spread_all<2 * Have, Times>(values);
        }
    }
};

// Per weight format: `interleave`, the words of a group if there are groups, and `deinterleave<P>(words)`.
template <class Vectors, class Weights>
struct interleaved_weights;

struct interleaved_without_groups {
    static constexpr int words_in_group = 0;
    static constexpr int offset = 0;
    static constexpr float scale_factor = 1;
    static constexpr float x_factor(int) { return 1; }
    // The weight of this index in this word.
    template <int Interleave>
    static constexpr int element(int plane, int word) {
        return word * Interleave + plane;
    }
};

template <class Vectors>
struct interleaved_weights<Vectors, unquantised_weight_rows<float>> : interleaved_without_groups {
    static constexpr int interleave = 1;
    template <int>
    [[gnu::always_inline]] static auto deinterleave(typename simd_operations<Vectors>::words all) {
        return simd_bit_cast<typename Vectors::vector>(all);
    }
};
template <class Vectors>
struct interleaved_weights<Vectors, unquantised_weight_rows<bf16>> : interleaved_without_groups {
    static constexpr int interleave = 2;
    template <int Plane>
    [[gnu::always_inline]] static auto deinterleave(typename simd_operations<Vectors>::words all) {
        return simd_bit_cast<typename Vectors::vector>(Plane == 0 ? all << 16 : all & 0xffff0000U);
    }
};
template <class Vectors>
struct interleaved_weights<Vectors, unquantised_weight_rows<fp16>> : interleaved_without_groups {
    static constexpr int interleave = 2;
    template <int Plane>
    [[gnu::always_inline]] static auto deinterleave(typename simd_operations<Vectors>::words all) {
        const auto bits = Plane == 0 ? all & 0xffffU : all >> 16;
        if constexpr (half_conversion<Vectors>::exists) {
            return half_conversion<Vectors>::to_floats(bits);
        } else {
            return simd_operations<Vectors>::template decode<fp16>(bits);
        }
    }
};
template <class Vectors>
struct interleaved_weights<Vectors, e4m3_weight_rows> : interleaved_without_groups {
    static constexpr int interleave = 4;
    template <int Plane>
    [[gnu::always_inline]] static auto deinterleave(typename simd_operations<Vectors>::words all) {
        return simd_operations<Vectors>::template decode<e4m3>((all >> (8 * Plane)) & 0xffU);
    }
};
template <class Vectors, activation_quantisation Activations, class Scale>
struct interleaved_weights<Vectors, int8_weight_rows<Activations, Scale>> : interleaved_without_groups {
    static constexpr int interleave = 4;
    static constexpr int words_in_group = 8;
    static constexpr float scale_factor = Activations == activation_quantisation::none ? 0x1p-24f : 1.0f;
    // Shifted to the top of a word, where its sign is the sign of the word.
    template <int Plane>
    [[gnu::always_inline]] static auto deinterleave(typename simd_operations<Vectors>::words all) {
        using vectors = simd_operations<Vectors>;
        const auto shifted = all << (24 - 8 * Plane);
        return vectors::to_floats(
            simd_bit_cast<typename vectors::integers>(Plane == 0 ? shifted : shifted & 0xff000000U));
    }
};
template <class Vectors, activation_quantisation Activations, class Scale>
struct interleaved_weights<Vectors, int4_weight_rows<Activations, Scale>> {
    static constexpr int interleave = 8;
    static constexpr int words_in_group = 4;
    static constexpr int offset = 8;
    static constexpr float scale_factor = 1;
    // Left in place in the word, except the last, which would be a sign.
    template <int Plane>
    [[gnu::always_inline]] static auto deinterleave(typename simd_operations<Vectors>::words all) {
        using vectors = simd_operations<Vectors>;
        return vectors::to_floats(
            simd_bit_cast<typename vectors::integers>(Plane == 7 ? all >> 28 : all & (15U << (4 * Plane))));
    }
    static constexpr float x_factor(int plane) {
        return plane == 7 ? 1.0f : 1.0f / static_cast<float>(1U << (4 * plane));
    }
    template <int>
    static constexpr int element(int plane, int word) {
        const int byte = word * 4 + plane / 2;
        return byte / 16 * weight_group_size + plane % 2 * 16 + byte % 16;
    }
};

}  // namespace imbrex::hw
