// The device's approximate functions (exp2, log2, reciprocal, tanh) in the host world.
#pragma once

#include <cmath>

namespace imbrex::hw {

inline float exp2(float x) {
    return std::exp2(x);
}
inline float log2(float x) {
    return std::log2(x);
}
inline float reciprocal(float x) {
    return 1.0f / x;
}
inline float tanh(float x) {
    return std::tanh(x);
}
inline float erf(float x) {
    return std::erf(x);
}

inline float abs(float x) {
    return std::fabs(x);
}

// For a number and a NaN, the number.
inline float max(float a, float b) {
    return std::fmax(a, b);
}
inline float min(float a, float b) {
    return std::fmin(a, b);
}
inline int max(int a, int b) {
    return a > b ? a : b;
}
inline int min(int a, int b) {
    return a < b ? a : b;
}

// a * b + c, rounded once.
inline float fma(float a, float b, float c) {
    return std::fma(a, b, c);
}

// On the device, a number that the compiler does not know.
inline int opaque(int number) {
    return number;
}

// On the device, keeps the compiler from deferring work.
inline void settle_sum(float) {}

}  // namespace imbrex::hw
