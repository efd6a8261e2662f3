// Fragments: the part of a register tile that each thread or simulated warp holds.
// Selects the implementation of this pass: hw/cuda/fragment.hpp or hw/host/fragment.hpp, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/fragment.hpp>
#else
#include <imbrex/hw/host/fragment.hpp>
#endif
