// Values held one per lane of a warp: gather, broadcast, count, maximum, prefix sum.
// Selects the implementation of this pass: hw/cuda/lanes.hpp or hw/host/lanes.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/lanes.hpp>
#else
#include <imbrex/hw/host/lanes.hpp>
#endif
