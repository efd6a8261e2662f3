// The small functions that reductions and maps are given. Any type with an IMBREX_FN call operator serves as well.
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
// A sum of squares: with what has been added so far.
struct add_square {
    constexpr IMBREX_FN float operator()(float sum, float x) const { return sum + x * x; }
};
// Of a number and a NaN, both give the number, as the hardware's own instructions do; on the device, where a comparison and
// a choice would take three, those instructions are asked for.
struct maximum {
    template <class T>
    constexpr IMBREX_FN T operator()(T a, T b) const {
        if constexpr (device_world && std::is_same_v<T, float>) {
            if (!std::is_constant_evaluated()) return fmaxf(a, b);
        }
        return a > b || b != b ? a : b;
    }
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
