// Chooses this pass's world: see hw/cuda/vector_row_columns.hpp and hw/host/vector_row_columns.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/vector_row_columns.hpp>
#else
#include <imbrex/hw/host/vector_row_columns.hpp>
#endif
