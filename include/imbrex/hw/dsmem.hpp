// Asynchronous stores to the shared memory of other blocks of a thread block cluster (DSMEM, st.async).
// Selects the implementation of this pass: hw/cuda/dsmem.hpp or hw/host/dsmem.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/dsmem.hpp>
#else
#include <imbrex/hw/host/dsmem.hpp>
#endif
