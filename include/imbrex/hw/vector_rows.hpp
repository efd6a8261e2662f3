// Vectorised row tiles: whole rows in the registers of a warp, for norms, SwiGLU, RoPE and sampling.
// Selects the implementation of this pass: hw/cuda or hw/host, which declare the same names.
#pragma once

#include <imbrex/core/config.hpp>

#if IMBREX_DEVICE_WORLD
#include <imbrex/hw/cuda/vector_row.hpp>
#include <imbrex/hw/cuda/vector_row_columns.hpp>
#include <imbrex/hw/cuda/vector_row_neighbours.hpp>
#include <imbrex/hw/cuda/vector_row_search.hpp>
#include <imbrex/hw/cuda/vector_row_values.hpp>
#else
#include <imbrex/hw/host/vector_row.hpp>
#include <imbrex/hw/host/vector_row_columns.hpp>
#include <imbrex/hw/host/vector_row_neighbours.hpp>
#include <imbrex/hw/host/vector_row_search.hpp>
#include <imbrex/hw/host/vector_row_values.hpp>
#endif
