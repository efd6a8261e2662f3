// Chooses this pass's world: see hw/cuda/widen.hpp and hw/host/widen.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/widen.hpp>
#else
#include <imbrex/hw/host/widen.hpp>
#endif
