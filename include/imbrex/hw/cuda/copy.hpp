// Copies between global memory, shared memory and registers, for tiles and vectors.
#pragma once

#include <imbrex/hw/cuda/copy_global.hpp>
#include <imbrex/hw/cuda/copy_register.hpp>
#include <imbrex/hw/cuda/copy_shared.hpp>
#include <imbrex/hw/cuda/copy_vector.hpp>
