// Copies between global memory, shared memory and registers, including cp.async.
// Selects the implementation of this pass: hw/cuda/copy.hpp or hw/host/copy.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/copy.hpp>
#else
#include <imbrex/hw/host/copy.hpp>
#endif
