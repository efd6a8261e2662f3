// mbarrier and named barrier operations, and the proxy fence. Selects the implementation of this pass:
// hw/cuda/barrier.hpp or hw/host/barrier.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/barrier.hpp>
#else
#include <imbrex/hw/host/barrier.hpp>
#endif
