// The boundary of the C API: exceptions become a status and the thread's last error.
#pragma once

#include "imbrex_c.h"

#include <exception>

namespace imbrex_c {

// The status of the exception that is being handled. Its message becomes the thread's last error.
imbrex_status status_of_current_exception() noexcept;

// Calls a function of the library from C.
template <class Function>
imbrex_status guarded(const Function& function) noexcept {
    try {
        function();
        return IMBREX_SUCCESS;
    } catch (...) {
        return status_of_current_exception();
    }
}

}  // namespace imbrex_c
