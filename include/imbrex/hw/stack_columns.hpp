// Stacking the columns of a tile with few used rows. Selects the implementation of this pass:
// hw/cuda/stack_columns.hpp or hw/host/stack_columns.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/stack_columns.hpp>
#else
#include <imbrex/hw/host/stack_columns.hpp>
#endif
