// Chooses this pass's world: see hw/cuda/simt_gemv.hpp and hw/host/simt_gemv.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/simt_gemv.hpp>
#else
#include <imbrex/hw/host/simt_gemv.hpp>
#endif
