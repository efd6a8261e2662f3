#include "status.hpp"

#include "../bindings/variant.hpp"

#include <imbrex/core/config.hpp>

#include <string>

static_assert(IMBREX_C_VERSION == 10000 * IMBREX_VERSION_MAJOR + 100 * IMBREX_VERSION_MINOR + IMBREX_VERSION_PATCH);

std::int32_t imbrex_version() {
    return IMBREX_C_VERSION;
}

const char* imbrex_variants(imbrex_world world) {
    static thread_local std::string names;
    const imbrex_status status = imbrex_c::guarded([&] {
        names.clear();
        const std::string indented = imbrex::bindings::variant_names(world == IMBREX_DEVICE);
        for (std::size_t i = 0; i < indented.size(); ++i) {
            const bool in_margin = indented[i] == ' ' && (names.empty() || names.back() == '\n');
            if (!in_margin) names += indented[i];
        }
    });
    return status == IMBREX_SUCCESS ? names.c_str() : "";
}
