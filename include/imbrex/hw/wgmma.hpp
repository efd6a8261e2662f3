// wgmma: asynchronous matrix products of a warpgroup. Selects the implementation of this pass:
// hw/cuda/wgmma.hpp or hw/host/wgmma.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/wgmma.hpp>
#else
#include <imbrex/hw/host/wgmma.hpp>
#endif
