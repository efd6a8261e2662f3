// Division that rounds up: how many tiles of `b` cover `a`. For host code: in the hot loops of decode kernels nvcc makes other machine code of
// the call than of the expression.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class A, class B>
constexpr IMBREX_FN auto ceil_div(A a, B b) {
    return (a + b - 1) / b;
}

}  // namespace imbrex
