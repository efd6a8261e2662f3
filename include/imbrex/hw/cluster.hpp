// Reads of the shared memory of other blocks of a thread block cluster (DSMEM).
// Selects the implementation of this pass: hw/cuda/cluster.hpp or hw/host/cluster.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/cluster.hpp>
#else
#include <imbrex/hw/host/cluster.hpp>
#endif
