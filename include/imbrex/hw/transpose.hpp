// Chooses this pass's world: see hw/cuda/transpose.hpp and hw/host/transpose.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/transpose.hpp>
#else
#include <imbrex/hw/host/transpose.hpp>
#endif
