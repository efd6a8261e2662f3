#include "checking.hpp"

#include "execution.hpp"
#include "status.hpp"

#include <imbrex/hw/host/launch.hpp>

#include <optional>

namespace imbrex_c {

namespace {

// A schedule of imbrex_check. Its hazard is kept until `work`, which is C, has returned.
struct checked_schedule {
    std::optional<imbrex::hazard> found;
};
thread_local checked_schedule* current = nullptr;

void run_once(imbrex_status (*work)(void*), void* context) {
    checked_schedule one;
    current = &one;
    const imbrex_status status = work(context);
    current = nullptr;
    if (one.found) throw imbrex::hazard_error(*one.found);
    if (status != IMBREX_SUCCESS) throw work_failed{status};
}

}  // namespace

bool is_checking() {
    if (current != nullptr && current->found) throw imbrex::hazard_error(*current->found);
    return current != nullptr;
}

void keep_for_check(const imbrex::hazard_error& found) noexcept {
    if (current == nullptr || current->found) return;
    try {
        current->found = found.reported_hazard();
    } catch (...) {  // out of memory: the call itself returns IMBREX_HAZARD
    }
}

}  // namespace imbrex_c

imbrex_status imbrex_check(const imbrex_execution* on, imbrex_status (*work)(void* context), void* context) {
    return imbrex_c::guarded([&] {
        using imbrex::require;
        const imbrex_execution given = imbrex_c::execution_given(on);
        require(given.world == IMBREX_HOST_CHECKED, "on.world: ", given.world, "; must be ", int{IMBREX_HOST_CHECKED},
                ", IMBREX_HOST_CHECKED");
        require(work != nullptr, "work: null; a function is needed");
        require(!imbrex_c::is_checking(), "work: it calls imbrex_check; checks cannot be nested");
        const auto hazard = imbrex::host::check_launches(
            [&] { imbrex_c::run_once(work, context); }, {.schedules = given.schedules, .first_seed = given.first_seed});
        if (hazard) throw imbrex_c::hazard_found(hazard->text());
    });
}
