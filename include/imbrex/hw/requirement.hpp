// Run-time checks of data that a kernel reads. Selects the implementation of this pass:
// hw/cuda/requirement.hpp or hw/host/requirement.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/requirement.hpp>
#else
#include <imbrex/hw/host/requirement.hpp>
#endif
