// Bulk copies of contiguous objects by TMA (cp.async.bulk). Selects the implementation of this pass:
// hw/cuda/bulk.hpp or hw/host/bulk.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/bulk.hpp>
#else
#include <imbrex/hw/host/bulk.hpp>
#endif
