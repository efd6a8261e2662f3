// Selects the world of this compiler pass: hw/cuda/upconvert.hpp or hw/host/upconvert.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/upconvert.hpp>
#else
#include <imbrex/hw/host/upconvert.hpp>
#endif
