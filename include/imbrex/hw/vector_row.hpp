// Chooses this pass's world: see hw/cuda/vector_row.hpp and hw/host/vector_row.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/vector_row.hpp>
#else
#include <imbrex/hw/host/vector_row.hpp>
#endif
