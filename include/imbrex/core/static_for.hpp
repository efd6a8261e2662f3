// A loop whose index is a compile-time constant: static_for<3>([&](auto i) { ... }) calls with integral_constant 0, 1, 2.
#pragma once

#include <imbrex/core/config.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

template <int Count, class Body>
IMBREX_KERNEL void static_for(const Body& body) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
        (body(std::integral_constant<int, I>{}), ...);
    }
    (std::make_integer_sequence<int, Count>{});
}

}  // namespace imbrex
