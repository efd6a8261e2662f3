// Includes everything, in two translation units: what is not inline is then defined twice and does not link.
#include <imbrex/imbrex.hpp>

int minor_version_of_the_other_file();

int main() {
    return minor_version_of_the_other_file() == IMBREX_VERSION_MINOR ? 0 : 1;
}
