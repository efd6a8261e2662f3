// Chooses this pass's world: see hw/cuda/tma.hpp and hw/host/tma.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/tma.hpp>
#else
#include <imbrex/hw/host/tma.hpp>
#endif
