// A host compiler has only a host pass, which is never the device world.
// expect: the host compiler has no device pass
#include <imbrex/core/config.hpp>

static_assert(imbrex::device_world, "the host compiler has no device pass");
