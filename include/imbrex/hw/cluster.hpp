// Shared memory of the other blocks of a cluster.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/cluster.hpp>
#else
#include <imbrex/hw/host/cluster.hpp>
#endif
