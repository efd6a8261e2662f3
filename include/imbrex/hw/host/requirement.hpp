// What a kernel requires of numbers that it finds in memory, in the host world: always asked, and refused with the sentence.
#pragma once

#include <imbrex/core/error.hpp>

#include <cstdio>

namespace imbrex::hw {

// The sentence has a %d for each number.
template <class... Numbers>
void require_in_kernel(bool allowed, const char* sentence, Numbers... numbers) {
    if (allowed) return;
    char text[256] = "";
    std::snprintf(text, sizeof text, sentence, numbers...);
    throw error(text);
}

}  // namespace imbrex::hw
