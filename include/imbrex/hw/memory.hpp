// Memory: loads and stores, cp.async, bulk copies, TMA, thread block clusters and DSMEM, atomics.
// Selects the implementation of this pass: hw/cuda or hw/host, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/atomic_value.hpp>
#include <imbrex/hw/cuda/bulk.hpp>
#include <imbrex/hw/cuda/cluster.hpp>
#include <imbrex/hw/cuda/copy.hpp>
#include <imbrex/hw/cuda/cp_async_iterator.hpp>
#include <imbrex/hw/cuda/dsmem.hpp>
#include <imbrex/hw/cuda/fragment_buffer.hpp>
#include <imbrex/hw/cuda/global_element.hpp>
#include <imbrex/hw/cuda/tma.hpp>
#include <imbrex/hw/cuda/upconvert_shared.hpp>
#else
#include <imbrex/hw/host/atomic_value.hpp>
#include <imbrex/hw/host/bulk.hpp>
#include <imbrex/hw/host/cluster.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/cp_async_iterator.hpp>
#include <imbrex/hw/host/dsmem.hpp>
#include <imbrex/hw/host/fragment_buffer.hpp>
#include <imbrex/hw/host/global_element.hpp>
#include <imbrex/hw/host/tma.hpp>
#include <imbrex/hw/host/upconvert_shared.hpp>
#endif
