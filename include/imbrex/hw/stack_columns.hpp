// Chooses this pass's world: see hw/cuda/stack_columns.hpp and hw/host/stack_columns.hpp, which
// define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/stack_columns.hpp>
#else
#include <imbrex/hw/host/stack_columns.hpp>
#endif
