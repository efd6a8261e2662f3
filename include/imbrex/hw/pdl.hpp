// PDL (programmatic dependent launch). Selects the implementation of this pass:
// hw/cuda/pdl.hpp or hw/host/pdl.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/pdl.hpp>
#else
#include <imbrex/hw/host/pdl.hpp>
#endif
