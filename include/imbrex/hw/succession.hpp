// Chooses this pass's world: see hw/cuda/succession.hpp and hw/host/succession.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/succession.hpp>
#else
#include <imbrex/hw/host/succession.hpp>
#endif
