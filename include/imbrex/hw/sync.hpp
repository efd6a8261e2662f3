// Synchronisation: mbarriers, named barriers, proxy fences, and programmatic dependent launch (PDL).
// Selects the implementation of this pass: hw/cuda or hw/host, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/barrier.hpp>
#include <imbrex/hw/cuda/pdl.hpp>
#else
#include <imbrex/hw/host/barrier.hpp>
#include <imbrex/hw/host/pdl.hpp>
#endif
