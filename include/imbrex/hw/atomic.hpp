// Chooses this pass's world: see hw/cuda/atomic.hpp and hw/host/atomic.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/atomic.hpp>
#else
#include <imbrex/hw/host/atomic.hpp>
#endif
