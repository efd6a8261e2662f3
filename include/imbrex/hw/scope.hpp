// Chooses this pass's world: see hw/cuda/scope.hpp and hw/host/scope.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/scope.hpp>
#else
#include <imbrex/hw/host/scope.hpp>
#endif
