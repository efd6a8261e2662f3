// Chooses this pass's world: see hw/cuda/register_operand.hpp and hw/host/register_operand.hpp, which define the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/register_operand.hpp>
#else
#include <imbrex/hw/host/register_operand.hpp>
#endif
