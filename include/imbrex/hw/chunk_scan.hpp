// Chooses this pass's world: see hw/cuda/chunk_scan.hpp and hw/host/chunk_scan.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/chunk_scan.hpp>
#else
#include <imbrex/hw/host/chunk_scan.hpp>
#endif
