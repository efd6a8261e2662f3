// Chooses this pass's world: see hw/cuda/narrow.hpp and hw/host/narrow.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/narrow.hpp>
#else
#include <imbrex/hw/host/narrow.hpp>
#endif
