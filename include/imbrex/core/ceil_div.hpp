// Division that rounds up: how many tiles of `b` cover `a`. The device code of paged_decode writes the expression out:
// nvcc generates different machine code for the call there.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class A, class B>
constexpr IMBREX_FN auto ceil_div(A a, B b) {
    return (a + b - 1) / b;
}

}  // namespace imbrex
