// Division by a number that the host knows before the launch: a product and a shift, where the hardware's division is some twenty
// instructions that wait for one another.
//
//     n / d = n * ceil(2^(31 + b) / d) / 2^(31 + b), rounded down, with 2^b >= d: exact for 0 <= n < 2^31, the factor below 2^32
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdint>

namespace imbrex {

struct fast_divmod {
    int value = 1;
    int shift = 31;
    std::uint32_t factor = 0x80000000U;

    constexpr fast_divmod() = default;
    constexpr explicit fast_divmod(int positive) : value(positive) {
        while ((std::int64_t{1} << (shift - 31)) < positive) ++shift;
        const auto divisor = static_cast<std::uint64_t>(positive);
        factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + divisor - 1) / divisor);
    }

    // Of a number that is not negative.
    constexpr IMBREX_FN int quotient(int number) const {
        return static_cast<int>((std::uint64_t{factor} * static_cast<std::uint32_t>(number)) >> shift);
    }
};

}  // namespace imbrex
