// Chooses this pass's world: see hw/cuda/group_mma.hpp and hw/host/group_mma.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/group_mma.hpp>
#else
#include <imbrex/hw/host/group_mma.hpp>
#endif
