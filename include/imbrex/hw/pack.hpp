// Chooses this pass's world: see hw/cuda/pack.hpp and hw/host/pack.hpp, which
// define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/pack.hpp>
#else
#include <imbrex/hw/host/pack.hpp>
#endif
