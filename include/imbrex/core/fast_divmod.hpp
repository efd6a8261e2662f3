// Division by a divisor that is known on the host before the launch (as CUTLASS's FastDivmod): a multiplication and a
// shift. The hardware has no integer division; the compiler emits about twenty dependent instructions for one.
//
//     n / d = n * ceil(2^(31 + b) / d) / 2^(31 + b), rounded down, with 2^b >= d
//
// This is exact for 0 <= n < 2^31, and the factor is below 2^32.
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

    // `number` must not be negative.
    constexpr IMBREX_FN int quotient(int number) const {
        return static_cast<int>((std::uint64_t{factor} * static_cast<std::uint32_t>(number)) >> shift);
    }
};

}  // namespace imbrex
