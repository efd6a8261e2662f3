// How many schedules of a kernel the checker runs: as many as a test asks for, or fewer where the environment variable IMBREX_SCHEDULES
// says so. The preset "test" sets it to 100, the preset "full" to 1,000.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace imbrex_test {

inline int schedules_to_run(int wanted) {
    const char* const limit = std::getenv("IMBREX_SCHEDULES");
    return limit == nullptr ? wanted : std::min(wanted, std::max(1, std::atoi(limit)));
}

}  // namespace imbrex_test
