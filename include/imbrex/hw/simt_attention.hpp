// Chooses this pass's world: see hw/cuda/weighted_rows.hpp and hw/host/weighted_rows.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/simt_attention.hpp>
#else
#include <imbrex/hw/host/simt_attention.hpp>
#endif
