// Attention products without tensor cores (SIMT). Selects the implementation of this pass:
// hw/cuda/simt_attention.hpp or hw/host/simt_attention.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/simt_attention.hpp>
#else
#include <imbrex/hw/host/simt_attention.hpp>
#endif
