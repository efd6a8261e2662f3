// Function objects for reductions and maps: add, multiply, maximum and so on. Any type with an IMBREX_FN call operator
// works as well.
#pragma once

#include <imbrex/core/config.hpp>

#include <type_traits>

namespace imbrex::functional {

struct add {
    template <class T>
    constexpr IMBREX_FN T operator()(T a, T b) const {
        return a + b;
    }
};
struct subtract {
    template <class T>
    constexpr IMBREX_FN T operator()(T a, T b) const {
        return a - b;
    }
};
struct multiply {
    template <class T>
    constexpr IMBREX_FN T operator()(T a, T b) const {
        return a * b;
    }
};
struct divide {
    template <class T>
    constexpr IMBREX_FN T operator()(T a, T b) const {
        return a / b;
    }
};
// Accumulates a sum of squares.
struct add_square {
    constexpr IMBREX_FN float operator()(float sum, float x) const { return sum + x * x; }
};
// maximum and minimum return the other operand if one is NaN, as the hardware instructions do. On the device fmaxf and
// fminf compile to that one instruction; a comparison and a select would take three.
struct maximum {
    template <class T>
    constexpr IMBREX_FN T operator()(T a, T b) const {
        if constexpr (device_world && std::is_same_v<T, float>) {
            if (!std::is_constant_evaluated()) return fmaxf(a, b);
        }
        return a > b || b != b ? a : b;
    }
};
// Accumulates the maximum of absolute values. NaN has no effect.
struct absolute_maximum {
    constexpr IMBREX_FN float operator()(float most, float x) const { return maximum{}(most, x < 0 ? -x : x); }
};
struct minimum {
    template <class T>
    constexpr IMBREX_FN T operator()(T a, T b) const {
        if constexpr (device_world && std::is_same_v<T, float>) {
            if (!std::is_constant_evaluated()) return fminf(a, b);
        }
        return a < b || b != b ? a : b;
    }
};

}  // namespace imbrex::functional
