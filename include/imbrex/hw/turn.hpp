// Chooses this pass's world: see hw/cuda/turn.hpp and hw/host/turn.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/turn.hpp>
#else
#include <imbrex/hw/host/turn.hpp>
#endif
