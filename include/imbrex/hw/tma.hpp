// TMA: bulk tensor copies, TMA multicast, and TMA reductions. Selects the implementation of this pass:
// hw/cuda/tma.hpp or hw/host/tma.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/tma.hpp>
#else
#include <imbrex/hw/host/tma.hpp>
#endif
