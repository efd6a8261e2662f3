// Scalar math (exp2, tanh, fma, conversions) and lane exchange inside a warp.
// Selects the implementation of this pass: hw/cuda or hw/host, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/lanes.hpp>
#include <imbrex/hw/cuda/math.hpp>
#include <imbrex/hw/cuda/scalar.hpp>
#else
#include <imbrex/hw/host/lanes.hpp>
#include <imbrex/hw/host/math.hpp>
#include <imbrex/hw/host/scalar.hpp>
#endif
