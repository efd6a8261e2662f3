// The scopes of a kernel (warp, warpgroup, block) and checks of device-side arguments.
// Selects the implementation of this pass: hw/cuda or hw/host, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/requirement.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#else
#include <imbrex/hw/host/requirement.hpp>
#include <imbrex/hw/host/scope.hpp>
#endif
