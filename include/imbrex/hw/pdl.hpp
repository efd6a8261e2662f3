// Chooses this pass's world: see hw/cuda/pdl.hpp and hw/host/pdl.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/pdl.hpp>
#else
#include <imbrex/hw/host/pdl.hpp>
#endif
