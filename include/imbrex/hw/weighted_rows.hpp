// Chooses this pass's world: see hw/cuda/weighted_rows.hpp and hw/host/weighted_rows.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/weighted_rows.hpp>
#else
#include <imbrex/hw/host/weighted_rows.hpp>
#endif
