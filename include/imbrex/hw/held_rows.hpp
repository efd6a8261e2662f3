// Chooses this pass's world: see hw/cuda/held_rows.hpp and hw/host/held_rows.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/held_rows.hpp>
#else
#include <imbrex/hw/host/held_rows.hpp>
#endif
