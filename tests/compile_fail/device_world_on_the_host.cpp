// A host compiler makes host code only: its one pass is never the device world.
// expect: the host compiler has no device pass
#include <imbrex/core/config.hpp>

static_assert(imbrex::device_world, "the host compiler has no device pass");
