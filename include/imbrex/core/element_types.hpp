// The element types of tiles, their traits, and convert<To>(from), the only conversion between them.
//
//      type      bits  values in an object  largest      conversion to it
//      double      64         1
//      float       32         1
//      bf16        16         1             3.39e38      nearest even, overflow to infinity
//      fp16        16         1             65504        nearest even, overflow to infinity
//      e4m3         8         1             448          nearest even, saturating
//      e5m2         8         1             57344        nearest even, saturating
//      e2m1         4         1             6            nearest even, saturating
//      e2m1x2       4         2             6            nearest even, saturating
//      ue8m0        8         1             2^127        upward, saturating
//      int32       32         1             2147483647   nearest even, saturating, NaN to zero
//      int8         8         1             127          nearest even, saturating, NaN to zero
//      int4x2       4         2             7            nearest even, saturating, NaN to zero
#pragma once

#include <cstdint>
#include <type_traits>

#include "imbrex/core/bf16.hpp"
#include "imbrex/core/config.hpp"
#include "imbrex/core/fp16.hpp"
#include "imbrex/core/fp4.hpp"
#include "imbrex/core/fp8.hpp"
#include "imbrex/core/int4.hpp"
#include "imbrex/core/small_float.hpp"

namespace imbrex {

// Traits of an element type, specialised below. `value` is the type that low() and high() of a packed type return, and
// otherwise the type itself. `bits` is the size of one value, `values` the number of values in an object.
template <class T>
struct element_traits {
    static constexpr int values = 0;
};

template <class Value, int Bits, int Values = 1>
struct element_description {
    using value = Value;
    static constexpr int bits = Bits;
    static constexpr int values = Values;
};

template <>
struct element_traits<double> : element_description<double, 64> {
    IMBREX_FN static constexpr const char* name() { return "double"; }
};
template <>
struct element_traits<float> : element_description<float, 32> {
    IMBREX_FN static constexpr const char* name() { return "float"; }
};
template <>
struct element_traits<bf16> : element_description<bf16, 16> {
    IMBREX_FN static constexpr const char* name() { return "bf16"; }
};
template <>
struct element_traits<fp16> : element_description<fp16, 16> {
    IMBREX_FN static constexpr const char* name() { return "fp16"; }
};
template <>
struct element_traits<e4m3> : element_description<e4m3, 8> {
    IMBREX_FN static constexpr const char* name() { return "e4m3"; }
};
template <>
struct element_traits<e5m2> : element_description<e5m2, 8> {
    IMBREX_FN static constexpr const char* name() { return "e5m2"; }
};
template <>
struct element_traits<e2m1> : element_description<e2m1, 4> {
    IMBREX_FN static constexpr const char* name() { return "e2m1"; }
};
template <>
struct element_traits<e2m1x2> : element_description<e2m1, 4, 2> {
    IMBREX_FN static constexpr const char* name() { return "e2m1x2"; }
};
template <>
struct element_traits<ue8m0> : element_description<ue8m0, 8> {
    IMBREX_FN static constexpr const char* name() { return "ue8m0"; }
};
template <>
struct element_traits<std::int32_t> : element_description<std::int32_t, 32> {
    IMBREX_FN static constexpr const char* name() { return "int32"; }
};
template <>
struct element_traits<std::int8_t> : element_description<std::int8_t, 8> {
    IMBREX_FN static constexpr const char* name() { return "int8"; }
};
template <>
struct element_traits<int4x2> : element_description<std::int8_t, 4, 2> {
    IMBREX_FN static constexpr const char* name() { return "int4x2"; }
};

template <class T>
concept element = (element_traits<T>::values > 0);
template <class T>
concept scalar_element = (element_traits<T>::values == 1);
template <class T>
concept packed_element = (element_traits<T>::values > 1);
// bf16, fp16, e4m3, e5m2 and e2m1.
template <class T>
concept small_float_element = element<T> && requires {
    T::format.mantissa_bits;
};

// Significant bits of one value: 4 for e2m1, although a single e2m1 takes a byte.
template <element T>
inline constexpr int bits_of = element_traits<T>::bits;
template <element T>
inline constexpr int values_in = element_traits<T>::values;
// Values in a byte: two for the packed types, one for 8-bit types, zero for wider ones.
template <element T>
inline constexpr int values_per_byte = sizeof(T) == 1 ? values_in<T> : 0;
template <element T>
using value_of = typename element_traits<T>::value;

template <element T>
IMBREX_FN constexpr const char* name_of() {
    return element_traits<T>::name();
}

// The largest and smallest finite value of an element type; for a packed type, in both halves. These are functions,
// because device code must not refer to a variable of class type.
template <element T>
IMBREX_FN constexpr T highest_of() {
    if constexpr (std::is_same_v<T, double>) return 0x1.fffffffffffffp1023;
    if constexpr (std::is_same_v<T, float>) return 0x1.fffffep127F;
    if constexpr (std::is_same_v<T, std::int32_t>) return 2147483647;
    if constexpr (std::is_same_v<T, std::int8_t>) return 127;
    if constexpr (std::is_same_v<T, int4x2>) return int4x2::from_values(7, 7);
    if constexpr (std::is_same_v<T, e2m1x2>) return e2m1x2::from_bits(0x77);
    if constexpr (std::is_same_v<T, ue8m0>) return ue8m0::from_bits(0xfe);
    if constexpr (small_float_element<T>) return T::from_bits(static_cast<decltype(T::bits)>(T::format.highest));
}

template <element T>
IMBREX_FN constexpr T lowest_of() {
    if constexpr (std::is_same_v<T, std::int32_t>) return -2147483647 - 1;
    if constexpr (std::is_same_v<T, std::int8_t>) return -128;
    if constexpr (std::is_same_v<T, int4x2>) return int4x2::from_values(-8, -8);
    if constexpr (std::is_same_v<T, ue8m0>) return ue8m0::from_bits(0);
    if constexpr (std::is_floating_point_v<T> || small_float_element<T> || std::is_same_v<T, e2m1x2>) {
        return -highest_of<T>();
    }
}

// Rounds a double or an int32 to float as an intermediate step to a narrower type. Rounding to nearest twice differs
// from rounding once. Rounding to odd first preserves ties and sides, so the second rounding is correct.
IMBREX_FN constexpr float float_to_odd(double value) {
    const float nearest = static_cast<float>(value);
    const double back = static_cast<double>(nearest);
    const std::uint32_t bits = bits_as<std::uint32_t>(nearest);
    if (back == value || (bits & ~float_sign) > float_infinity) return nearest;
    const bool too_large = value < 0 ? back < value : back > value;
    return bits_as<float>((too_large ? bits - 1 : bits) | 1U);
}

IMBREX_FN constexpr float float_to_odd(std::int32_t value) {
    const bool negative = value < 0;
    const std::uint32_t magnitude =
        negative ? 0U - static_cast<std::uint32_t>(value) : static_cast<std::uint32_t>(value);
    const std::uint32_t lost = magnitude & 0xffU;
    const std::uint32_t kept = magnitude < (1U << 24) || lost == 0 ? magnitude : (magnitude - lost) | 0x100U;
    return negative ? -static_cast<float>(kept) : static_cast<float>(kept);
}

// The value of type To nearest to `value`, rounded once for every pair of types.
template <scalar_element To, scalar_element From>
IMBREX_FN constexpr To convert(From value) {
    constexpr bool wide = std::is_same_v<From, double> || std::is_same_v<From, std::int32_t>;
    if constexpr (std::is_same_v<To, From>) {
        return value;
    } else if constexpr (std::is_same_v<To, double> && !std::is_arithmetic_v<From>) {
        return static_cast<double>(static_cast<float>(value));
    } else if constexpr (std::is_floating_point_v<To>) {
        return static_cast<To>(value);
    } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
        return static_cast<To>(clamp_integer(value, lowest_of<To>(), highest_of<To>()));
    } else if constexpr (std::is_integral_v<To> && std::is_same_v<From, double>) {
        return convert<To>(to_int32(value));
    } else if constexpr (std::is_same_v<To, std::int32_t>) {
        return to_int32(static_cast<float>(value));
    } else if constexpr (std::is_same_v<To, std::int8_t>) {
        return to_int8(static_cast<float>(value));
    } else if constexpr (wide) {
        return To(float_to_odd(value));
    } else {
        return To(static_cast<float>(value));
    }
}

template <packed_element To, scalar_element From>
IMBREX_FN constexpr To convert(From low, From high) {
    if constexpr (std::is_same_v<From, float>) {
        return To(low, high);
    } else if constexpr (std::is_integral_v<value_of<To>>) {
        return To::from_values(convert<std::int32_t>(low), convert<std::int32_t>(high));
    } else {
        return To(convert<value_of<To>>(low), convert<value_of<To>>(high));
    }
}

template <packed_element To, packed_element From>
IMBREX_FN constexpr To convert(From values) {
    if constexpr (std::is_same_v<To, From>) {
        return values;
    } else {
        return convert<To>(values.low(), values.high());
    }
}

}  // namespace imbrex
