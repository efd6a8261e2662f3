// A check to call from each test framework: of a correct kernel, and of one whose warps race.
#pragma once

#include <imbrex/hw/host/hazard.hpp>

#include <optional>

namespace imbrex_frameworks {

std::optional<imbrex::hazard> check_correct_kernel();
std::optional<imbrex::hazard> check_racing_kernel();

}  // namespace imbrex_frameworks
