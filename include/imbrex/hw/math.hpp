// Fast approximations of exp2, log2, reciprocal and tanh. Selects the implementation of this pass:
// hw/cuda/math.hpp or hw/host/math.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/math.hpp>
#else
#include <imbrex/hw/host/math.hpp>
#endif
