// Transposing the register tiles of a warp. Selects the implementation of this pass:
// hw/cuda/transpose.hpp or hw/host/transpose.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/transpose.hpp>
#else
#include <imbrex/hw/host/transpose.hpp>
#endif
