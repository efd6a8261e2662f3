// Checks of data that a kernel reads from memory, in the host world: always active; a failure throws imbrex::error.
#pragma once

#include <imbrex/core/error.hpp>

#include <cstdio>

namespace imbrex::hw {

// The message has a %d for each number.
template <class... Numbers>
void require_in_kernel(bool allowed, const char* sentence, Numbers... numbers) {
    if (allowed) return;
    char text[256] = "";
    std::snprintf(text, sizeof text, sentence, numbers...);
    throw error(text);
}

}  // namespace imbrex::hw
