// Selects the world of this compiler pass: hw/cuda/dequantise.hpp or hw/host/dequantise.hpp, which define the same
// names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/dequantise.hpp>
#else
#include <imbrex/hw/host/dequantise.hpp>
#endif
