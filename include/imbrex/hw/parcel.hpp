// Chooses this pass's world: see hw/cuda/parcel.hpp and hw/host/parcel.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/parcel.hpp>
#else
#include <imbrex/hw/host/parcel.hpp>
#endif
