// Chooses this pass's world: see hw/cuda/dsmem.hpp and hw/host/dsmem.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/dsmem.hpp>
#else
#include <imbrex/hw/host/dsmem.hpp>
#endif
