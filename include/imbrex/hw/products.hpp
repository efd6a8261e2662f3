// Matrix products: mma.sync, wgmma, and SIMT products for GEMV and attention without tensor cores.
// Selects the implementation of this pass: hw/cuda or hw/host, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/mma.hpp>
#include <imbrex/hw/cuda/simt_attention.hpp>
#include <imbrex/hw/cuda/simt_gemv.hpp>
#include <imbrex/hw/cuda/wgmma.hpp>
#else
#include <imbrex/hw/host/mma.hpp>
#include <imbrex/hw/host/simt_attention.hpp>
#include <imbrex/hw/host/simt_gemv.hpp>
#include <imbrex/hw/host/wgmma.hpp>
#endif
