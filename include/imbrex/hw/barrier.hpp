// Chooses this pass's world: see hw/cuda/barrier.hpp and hw/host/barrier.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/barrier.hpp>
#else
#include <imbrex/hw/host/barrier.hpp>
#endif
