// Chooses this pass's world: see hw/cuda/chunks.hpp and hw/host/chunks.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/chunks.hpp>
#else
#include <imbrex/hw/host/chunks.hpp>
#endif
