// Checks of data that a kernel reads from memory and the host could not check before the launch. Debug builds print the
// message and trap; release builds do not check.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdio>

namespace imbrex::hw {

// The message has a %d for each number.
template <class... Numbers>
IMBREX_KERNEL void require_in_kernel([[maybe_unused]] bool allowed, [[maybe_unused]] const char* sentence,
                                     [[maybe_unused]] Numbers... numbers) {
#if !defined(NDEBUG)
    if (allowed) return;
    printf(sentence, numbers...);
    printf("\n");
    __trap();
#endif
}

}  // namespace imbrex::hw
