// Chooses this pass's world: see hw/cuda/thread_rows.hpp and hw/host/thread_rows.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/thread_rows.hpp>
#else
#include <imbrex/hw/host/thread_rows.hpp>
#endif
