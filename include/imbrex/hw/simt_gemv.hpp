// Selects the world of this compiler pass: hw/cuda/simt_gemv.hpp or hw/host/simt_gemv.hpp, which define the same names.
// hw/cuda/simt_gemv.hpp or hw/host/simt_gemv.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/simt_gemv.hpp>
#else
#include <imbrex/hw/host/simt_gemv.hpp>
#endif
