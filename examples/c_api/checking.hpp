// imbrex_check: while a thread is in it, its calls for the checked host world are launches of one stream.
#pragma once

#include "imbrex_c.h"

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/hazard.hpp>

namespace imbrex_c {

// The report of a call that was checked under several schedules.
class hazard_found : public imbrex::error {
  public:
    using error::error;
};

// Work of imbrex_check that failed. The message of its failed call, if any, is already the thread's last error.
struct work_failed {
    imbrex_status status;
};

// Whether the thread is in imbrex_check. Throws if this schedule has already shown a hazard: nothing may be launched after it.
bool is_checking();

// Remembers the hazard of a launch for the imbrex_check that the thread is in, if any.
void keep_for_check(const imbrex::hazard_error& found) noexcept;

}  // namespace imbrex_c
