// Chooses this pass's world: see hw/cuda/math.hpp and hw/host/math.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/math.hpp>
#else
#include <imbrex/hw/host/math.hpp>
#endif
