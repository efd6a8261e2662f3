// Tile shapes of the attention kernels: block_m x block_n, pipeline stages and register budgets.
#pragma once

#include <imbrex/kernels/attention/output.hpp>

namespace imbrex {

// The Hopper kernel.
struct attention_shape {
    int consumer_warpgroups = 2;  // of 64 query rows each
    int block_n = 128;            // keys of a tile
    int stages = 2;
    int producer_registers = 24;
    int consumer_registers = 240;
    bool pingpong = true;  // ping-pong order barrier between the warpgroups; without it they issue WGMMAs in any order
    attention_rescaling rescaling = attention_rescaling::exact;
};

// The Ampere-class kernel, from sm_80 on.
struct attention_ampere_shape {
    int warps = 8;
    int warp_rows = 16;           // query rows of a warp; 32 share loads of K and may need too many registers
    int block_n = 64;             // keys of a tile
    int stages = 2;               // 1 or 2, see attention/ampere.hpp
    bool q_in_registers = false;  // keep Q in registers for all key tiles
};

}  // namespace imbrex
