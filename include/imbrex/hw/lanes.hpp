// Chooses this pass's world: see hw/cuda/lanes.hpp and hw/host/lanes.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/lanes.hpp>
#else
#include <imbrex/hw/host/lanes.hpp>
#endif
