// Vectorised rows: eight neighbouring elements per lane. Selects the implementation of this pass:
// hw/cuda/vector_row.hpp or hw/host/vector_row.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/vector_row.hpp>
#else
#include <imbrex/hw/host/vector_row.hpp>
#endif
