// Chooses this pass's world: see hw/cuda/bulk.hpp and hw/host/bulk.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/bulk.hpp>
#else
#include <imbrex/hw/host/bulk.hpp>
#endif
