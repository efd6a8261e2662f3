// setmaxnreg takes multiples of 8.
// expect: a role's registers must be 0 (leave as launched) or a multiple of 8 from 24 to 256
#include <imbrex/imbrex.hpp>

using namespace imbrex;

auto wrong() {
    return producer<30>([](warp&) {});
}
