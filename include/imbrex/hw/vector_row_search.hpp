// Chooses this pass's world: see hw/cuda/vector_row_search.hpp and hw/host/vector_row_search.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/vector_row_search.hpp>
#else
#include <imbrex/hw/host/vector_row_search.hpp>
#endif
