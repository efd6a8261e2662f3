// Register tiles: fragments, accumulator order, their rows, transposes, row_max, upconversion and dequantisation.
// Selects the implementation of this pass: hw/cuda or hw/host, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/accumulator_order.hpp>
#include <imbrex/hw/cuda/dequantise.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/register_operand.hpp>
#include <imbrex/hw/cuda/row_max.hpp>
#include <imbrex/hw/cuda/stack_columns.hpp>
#include <imbrex/hw/cuda/thread_rows.hpp>
#include <imbrex/hw/cuda/transpose.hpp>
#include <imbrex/hw/cuda/upconvert.hpp>
#else
#include <imbrex/hw/host/accumulator_order.hpp>
#include <imbrex/hw/host/dequantise.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/register_operand.hpp>
#include <imbrex/hw/host/row_max.hpp>
#include <imbrex/hw/host/stack_columns.hpp>
#include <imbrex/hw/host/thread_rows.hpp>
#include <imbrex/hw/host/transpose.hpp>
#include <imbrex/hw/host/upconvert.hpp>
#endif
