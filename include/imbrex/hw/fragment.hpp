// Chooses this pass's world: see hw/cuda/fragment.hpp and hw/host/fragment.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/fragment.hpp>
#else
#include <imbrex/hw/host/fragment.hpp>
#endif
