// The source location of an operation. Every operation of a kernel takes one as its last, defaulted argument, so that
// the checker can name the line of a hazard. On the device it is empty and costs nothing.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

#if IMBREX_DEVICE_WORLD

struct source {
    static constexpr IMBREX_KERNEL source current() { return {}; }
};

#else

struct source {
    const char* file = "";
    int line = 0;

    // The defaults are evaluated at the outermost call, which is the kernel's line.
    static constexpr source current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

#endif

}  // namespace imbrex
