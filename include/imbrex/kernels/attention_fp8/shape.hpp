// Tile shapes of the 8-bit attention kernel.
#pragma once

#include <imbrex/kernels/attention/heuristics.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention_fp8/output_sum.hpp>

namespace imbrex {

// V as [.., key, head_dim], transposed by the kernel, or as [.., head_dim, key] (K-major, as 8-bit WGMMA reads it).
enum class fp8_v_layout { row_major, k_major };

struct attention_fp8_shape {
    int consumer_warpgroups = 2;  // of 64 query rows each
    int block_n = 128;            // keys of a tile, a multiple of 32
    int product_columns = 0;      // a promoted product is computed so many columns at a time; 0: all
    int stages = 2;
    int producer_registers = 40;
    int consumer_registers = 232;
    bool pingpong = true;
    // Promoted sums: the key tiles that the tensor cores sum before the sum is added to fp32 sums in shared memory; 0: one,
    // in registers.
    int promotion_interval = 0;

    constexpr attention_shape common() const {
        return {consumer_warpgroups, block_n, stages, producer_registers, consumer_registers, pingpong};
    }
};

// The number of consumer warpgroups and the widest key tiles that fit registers and shared memory; with scales per
// block of keys, as wide as divides that.
constexpr attention_fp8_shape attention_fp8_shape_for(int head_dim, fp8_accumulation sum,
                                                      attention_register_demand demand, int kv_block) {
    struct tiles {
        int consumer_warpgroups;
        int block_n;
    };
    struct row {
        int head_dim;
        fp8_accumulation sum;
        tiles by_demand[3];
    };
    constexpr fp8_accumulation fast = fp8_accumulation::fast, promoted = fp8_accumulation::promoted;
    constexpr row table[] = {
        // lowest (no mask), low (causal), other
        {64, fast, {{3, 160}, {3, 128}, {2, 128}}},      //
        {64, promoted, {{2, 192}, {2, 192}, {2, 128}}},  //
        {128, fast, {{2, 224}, {2, 192}, {2, 128}}},     //
        {128, promoted, {{2, 160}, {2, 128}, {2, 64}}},  //
        {256, fast, {{2, 96}, {2, 96}, {2, 64}}},        //
    };
    for (const row& one : table) {
        if (head_dim > one.head_dim || sum != one.sum) continue;
        const int column = demand == attention_register_demand::lowest ? 0
                           : demand == attention_register_demand::low  ? 1
                                                                       : 2;
        attention_fp8_shape made{one.by_demand[column].consumer_warpgroups, one.by_demand[column].block_n};
        if (made.consumer_warpgroups == 3) {
            made.producer_registers = 32;
            made.consumer_registers = 160;
        }
        if (one.head_dim == 128 && sum == promoted) made.product_columns = 64;
        while (kv_block != 0 && kv_block % made.block_n != 0) made.block_n -= 32;
        return made;
    }
    return {};
}

}  // namespace imbrex
