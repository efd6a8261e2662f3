// Chooses this pass's world: see hw/cuda/chunk_rows.hpp and hw/host/chunk_rows.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/chunk_rows.hpp>
#else
#include <imbrex/hw/host/chunk_rows.hpp>
#endif
