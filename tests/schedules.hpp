// The number of schedules in which the checker runs a kernel: the number that a test requests, limited by the
// environment variable IMBREX_SCHEDULES. The preset "test" sets it to 100, the preset "full" to 1,000.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace imbrex_test {

inline int schedules_to_run(int wanted) {
    const char* const limit = std::getenv("IMBREX_SCHEDULES");
    return limit == nullptr ? wanted : std::min(wanted, std::max(1, std::atoi(limit)));
}

}  // namespace imbrex_test
