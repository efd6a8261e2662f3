// Row values of vectorised rows. Selects the implementation of this pass:
// hw/cuda/vector_row_values.hpp or hw/host/vector_row_values.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/vector_row_values.hpp>
#else
#include <imbrex/hw/host/vector_row_values.hpp>
#endif
