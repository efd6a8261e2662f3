// Chooses this pass's world: see hw/cuda/row_max.hpp and hw/host/row_max.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/row_max.hpp>
#else
#include <imbrex/hw/host/row_max.hpp>
#endif
