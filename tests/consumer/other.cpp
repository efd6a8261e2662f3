// The second translation unit.
#include <imbrex/imbrex.hpp>

int minor_version_of_the_other_file() {
    return IMBREX_VERSION_MINOR;
}
