// Tests of a kernel's synchronisation in the checked host world: the kernel has no hazard in many schedules, and the
// checker detects every mutation (a wait, fence or release that is skipped or altered). Not compiled by nvcc.
#pragma once

#if !defined(__CUDACC__)

#include <doctest/doctest.h>

#include <imbrex/imbrex.hpp>

#include <optional>
#include <string>

#include "schedules.hpp"

namespace imbrex_test {

// The report of a check, empty if there is none.
inline std::string text_of(const std::optional<imbrex::hazard>& found) {
    return found ? found->text() : std::string();
}

template <class Kernel>
void check_silent(imbrex::grid_dim grid, const typename Kernel::arguments& arguments, int schedules = 1000) {
    const auto found = imbrex::host::check<Kernel>(grid, arguments, schedules_to_run(schedules));
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
}

template <class Kernel>
void check_synchronisation(const std::string& name, imbrex::grid_dim grid, const typename Kernel::arguments& arguments,
                           int schedules = 1000) {
    CAPTURE(name);
    check_silent<Kernel>(grid, arguments, schedules);
    const imbrex::host::mutation_score score = imbrex::host::mutate<Kernel>(grid, arguments);
    MESSAGE(name << ": " << score.killed() << " / " << score.total());
    INFO(score.text());
    CHECK(score.total() > 0);
    CHECK(score.killed() == score.total());
}

// For the kernels that `work` launches in the checked host world: no hazard in many schedules, and the checker detects
// every mutation of their PDL waits and launches.
template <class Work>
imbrex::host::mutation_score check_stream(const std::string& name, const Work& work, int schedules = 100) {
    CAPTURE(name);
    const auto found = imbrex::host::check_launches(work, {.schedules = schedules_to_run(schedules)});
    CHECK(text_of(found) == "");
    const imbrex::host::mutation_score score = imbrex::host::mutate_launches(
        work, {.kinds = {imbrex::synchronisation::pdl_wait, imbrex::synchronisation::pdl_launch}});
    MESSAGE(name << ": " << score.killed() << " / " << score.total());
    INFO(score.text());
    CHECK(score.total() > 0);
    CHECK(score.killed() == score.total());
    return score;
}

// For a kernel whose warps share nothing: it has no synchronisation to mutate.
template <class Kernel>
void check_without_synchronisation(imbrex::grid_dim grid, const typename Kernel::arguments& arguments) {
    check_silent<Kernel>(grid, arguments);
    CHECK(imbrex::host::mutate<Kernel>(grid, arguments).total() == 0);
}

}  // namespace imbrex_test
#endif
