// Chooses this pass's world: see hw/cuda/copy.hpp and hw/host/copy.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/copy.hpp>
#else
#include <imbrex/hw/host/copy.hpp>
#endif
