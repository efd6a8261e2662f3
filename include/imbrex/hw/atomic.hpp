// Atomic operations and fences on global and shared memory. Selects the implementation of this pass:
// hw/cuda/atomic.hpp or hw/host/atomic.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/atomic.hpp>
#else
#include <imbrex/hw/host/atomic.hpp>
#endif
