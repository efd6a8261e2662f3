// Chooses this pass's world: see hw/cuda/scalar.hpp and hw/host/scalar.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/scalar.hpp>
#else
#include <imbrex/hw/host/scalar.hpp>
#endif
