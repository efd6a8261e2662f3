// The shapes in which attention's kernels work: how many queries a block has, how many keys it sees at a time, and what it has for that.
#pragma once

#include <imbrex/kernels/attention/output.hpp>

namespace imbrex {

// On Hopper.
struct attention_shape {
    int consumer_warpgroups = 2;  // of 64 queries
    int block_n = 128;            // keys in a tile
    int stages = 2;
    int producer_registers = 24;
    int consumer_registers = 240;
    bool pingpong = true;  // or whoever comes first gets the tensor cores
    attention_rescaling rescaling = attention_rescaling::exact;
};

// On every GPU from sm_80 on.
struct attention_ampere_shape {
    int warps = 8;
    int warp_rows = 16;  // queries of a warp; or 32, which share their loads of keys and may want too many registers
    int block_n = 64;    // keys in a tile
    int stages = 2;      // 1 or 2, see attention/ampere.hpp
    bool q_in_registers = false;  // in registers
};

}  // namespace imbrex
