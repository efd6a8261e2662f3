// Chooses this pass's world: see hw/cuda/mma.hpp and hw/host/mma.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/mma.hpp>
#else
#include <imbrex/hw/host/mma.hpp>
#endif
