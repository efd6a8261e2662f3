#include "checking.hpp"

#include <cstdint>
#include <string>

namespace imbrex_torch {

namespace {

struct check_state {
    int schedules = 0;  // 0: not checking
    std::uint64_t first_seed = 0;
    std::string report;
};
thread_local check_state checking;

}  // namespace

void give_check(imbrex::bindings::execution& on) {
    if (checking.schedules == 0) return;
    on.where = imbrex::world::host_checked;
    on.schedules = checking.schedules;
    on.first_seed = checking.first_seed;
    on.report = &checking.report;
}

}  // namespace imbrex_torch

// Called through ctypes.
extern "C" void imbrex_torch_begin_check(int schedules, std::uint64_t first_seed) {
    imbrex_torch::checking = {schedules, first_seed, {}};
}

// The first report since the check began, or an empty text. It lives until the thread's next check.
extern "C" const char* imbrex_torch_end_check() {
    imbrex_torch::checking.schedules = 0;
    return imbrex_torch::checking.report.c_str();
}
