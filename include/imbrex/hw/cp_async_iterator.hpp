// Selects the world of this compiler pass: hw/cuda/cp_async_iterator.hpp or hw/host/cp_async_iterator.hpp, which define
// the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/cp_async_iterator.hpp>
#else
#include <imbrex/hw/host/cp_async_iterator.hpp>
#endif
