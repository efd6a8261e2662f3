// Chooses this pass's world: see hw/cuda/largest.hpp and hw/host/largest.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/largest.hpp>
#else
#include <imbrex/hw/host/largest.hpp>
#endif
