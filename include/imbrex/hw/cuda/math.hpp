// Hardware approximations: one instruction each, relative error about 2^-22, subnormals flushed to zero.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdint>

namespace imbrex::hw {

IMBREX_KERNEL float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

IMBREX_KERNEL float log2(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

IMBREX_KERNEL float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Less accurate than the others: relative error up to 2^-11.
IMBREX_KERNEL float tanh(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

IMBREX_KERNEL float erf(float x) {
    return erff(x);
}

IMBREX_KERNEL float abs(float x) {
    return fabsf(x);
}

// For a number and a NaN, the number.
IMBREX_KERNEL float max(float a, float b) {
    return fmaxf(a, b);
}
IMBREX_KERNEL float min(float a, float b) {
    return fminf(a, b);
}
IMBREX_KERNEL int max(int a, int b) {
    return a > b ? a : b;
}
IMBREX_KERNEL int min(int a, int b) {
    return a < b ? a : b;
}

// a * b + c, rounded once.
IMBREX_KERNEL float fma(float a, float b, float c) {
    return fmaf(a, b, c);
}

// Four of the eight bytes of a and b: byte i of the result is number (selector >> 4 i) & 7. (prmt)
IMBREX_KERNEL std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
    return __byte_perm(a, b, selector);
}

// The same number, unknown to the compiler before this point: it does not compute what depends on it ahead of a loop.
IMBREX_KERNEL int opaque(int number) {
    asm volatile("" : "+r"(number));
    return number;
}

// Forces the inputs of a sum to be computed before this point: the sum is stored if it is negative, which it never is.
// ptxas cannot know this and does not defer the work.
IMBREX_KERNEL void settle_sum(float sum) {
    asm volatile(
        "{\n\t.reg .pred negative;\n\tsetp.lt.f32 negative, %0, 0f00000000;\n\t@negative st.shared.f32 [%1], %0;\n\t}"
        :
        : "f"(sum), "r"(0)
        : "memory");
}

}  // namespace imbrex::hw
