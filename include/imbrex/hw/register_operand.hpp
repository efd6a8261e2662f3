// Selects the world of this compiler pass: hw/cuda/register_operand.hpp or hw/host/register_operand.hpp, which define
// the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/register_operand.hpp>
#else
#include <imbrex/hw/host/register_operand.hpp>
#endif
