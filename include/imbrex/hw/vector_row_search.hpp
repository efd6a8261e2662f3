// Searches in vectorised rows. Selects the implementation of this pass:
// hw/cuda/vector_row_search.hpp or hw/host/vector_row_search.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/vector_row_search.hpp>
#else
#include <imbrex/hw/host/vector_row_search.hpp>
#endif
