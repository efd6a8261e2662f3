// Scopes: warp, warpgroup, block, and the roles of a block. Selects the implementation of this pass:
// hw/cuda/scope.hpp or hw/host/scope.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/scope.hpp>
#else
#include <imbrex/hw/host/scope.hpp>
#endif
