// Chooses this pass's world: see hw/cuda/wgmma.hpp and hw/host/wgmma.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/wgmma.hpp>
#else
#include <imbrex/hw/host/wgmma.hpp>
#endif
