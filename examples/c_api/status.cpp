#include "status.hpp"

#include "checking.hpp"

#include "../bindings/variant.hpp"

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/hazard.hpp>

#include <new>
#include <string>

namespace imbrex_c {

namespace {

struct last_error {
    std::string text;
    const char* shown = "";

    imbrex_status set(imbrex_status status, const char* message) noexcept {
        try {
            text = message;
            shown = text.c_str();
        } catch (...) {
            shown = "out of memory";
        }
        return status;
    }
};
thread_local last_error last;

}  // namespace

imbrex_status status_of_current_exception() noexcept {
    try {
        throw;
    } catch (const imbrex::hazard_error& found) {
        keep_for_check(found);
        return last.set(IMBREX_HAZARD, found.what());
    } catch (const hazard_found& found) {
        return last.set(IMBREX_HAZARD, found.what());
    } catch (const work_failed& failed) {
        return failed.status;
    } catch (const imbrex::bindings::unknown_variant& failed) {
        return last.set(IMBREX_UNKNOWN_VARIANT, failed.what());
    } catch (const imbrex::invalid_argument& failed) {
        return last.set(IMBREX_INVALID_ARGUMENT, failed.what());
    } catch (const imbrex::cuda_error& failed) {
        return last.set(IMBREX_CUDA_ERROR, failed.what());
    } catch (const std::bad_alloc&) {
        return last.set(IMBREX_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& failed) {
        return last.set(IMBREX_INTERNAL_ERROR, failed.what());
    } catch (...) {
        return last.set(IMBREX_INTERNAL_ERROR, "unknown exception");
    }
}

}  // namespace imbrex_c

const char* imbrex_last_error() {
    return imbrex_c::last.shown;
}

const char* imbrex_status_name(imbrex_status status) {
    switch (status) {
        case IMBREX_SUCCESS:
            return "IMBREX_SUCCESS";
        case IMBREX_INVALID_ARGUMENT:
            return "IMBREX_INVALID_ARGUMENT";
        case IMBREX_UNKNOWN_VARIANT:
            return "IMBREX_UNKNOWN_VARIANT";
        case IMBREX_HAZARD:
            return "IMBREX_HAZARD";
        case IMBREX_CUDA_ERROR:
            return "IMBREX_CUDA_ERROR";
        case IMBREX_OUT_OF_MEMORY:
            return "IMBREX_OUT_OF_MEMORY";
        case IMBREX_INTERNAL_ERROR:
            return "IMBREX_INTERNAL_ERROR";
        default:
            return "unknown status";
    }
}
