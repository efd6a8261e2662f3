// serve in a build without an HTTP library.
#include <imbrex/core/error.hpp>

#include "engine/cli/commands.hpp"

namespace imbrex::engine {

int run_serve(const serve_command&, const command_streams&) {
    throw error(
        "serve: this program was built without it, since CMake did not find cpp-httplib (Debian: libcpp-httplib-dev; "
        "-DIMBREX_HTTPLIB_DIR=<directory> names a copy), or for a system other than Linux");
}

}  // namespace imbrex::engine
