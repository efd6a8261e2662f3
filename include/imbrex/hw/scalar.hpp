// Single values in shared and global memory, counters, and reductions to one value.
// Selects the implementation of this pass: hw/cuda/scalar.hpp or hw/host/scalar.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/scalar.hpp>
#else
#include <imbrex/hw/host/scalar.hpp>
#endif
