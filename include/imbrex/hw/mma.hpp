// Warp-level matrix products (mma.sync). Selects the implementation of this pass:
// hw/cuda/mma.hpp or hw/host/mma.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/mma.hpp>
#else
#include <imbrex/hw/host/mma.hpp>
#endif
