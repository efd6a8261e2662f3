// Chooses this pass's world: see hw/cuda/requirement.hpp and hw/host/requirement.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/requirement.hpp>
#else
#include <imbrex/hw/host/requirement.hpp>
#endif
