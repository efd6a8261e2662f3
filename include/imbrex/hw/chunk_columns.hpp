// Chooses this pass's world: see hw/cuda/chunk_columns.hpp and hw/host/chunk_columns.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/chunk_columns.hpp>
#else
#include <imbrex/hw/host/chunk_columns.hpp>
#endif
