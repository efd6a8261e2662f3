// What a kernel requires of numbers that it finds in memory, where nobody could ask before it was launched. In debug builds whoever finds
// them otherwise prints the sentence, and the launch fails; in others they are trusted, and nothing is asked.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdio>

namespace imbrex::hw {

// The sentence has a %d for each number.
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
