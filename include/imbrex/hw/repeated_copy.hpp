// Chooses this pass's world: see hw/cuda/repeated_copy.hpp and hw/host/repeated_copy.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/repeated_copy.hpp>
#else
#include <imbrex/hw/host/repeated_copy.hpp>
#endif
