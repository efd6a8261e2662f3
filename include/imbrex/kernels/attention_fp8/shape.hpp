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

// The widest key tiles that fit registers and shared memory and are fastest in docs/results/attention_fp8.json; with
// scales per block of keys, as wide as divides that. Promoted sums with head_dim 256 are in shared memory: two
// accumulators do not fit the registers.
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
        {128, promoted, {{2, 160}, {2, 160}, {2, 64}}},  //
        {256, fast, {{2, 96}, {2, 96}, {2, 64}}},        //
        {256, promoted, {{2, 32}, {2, 32}, {2, 32}}},    //
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
        if (one.head_dim == 256 && sum == promoted) made.promotion_interval = 8;
        while (kv_block != 0 && kv_block % made.block_n != 0) made.block_n -= 32;
        return made;
    }
    return {};
}

// One shape for each kernel, or a second one for the numbers of keys at which it is at least 2% faster.
enum class fp8_shapes { one, by_length };

// The shape for `first_keys` to `last_keys` keys; for none if first_keys is larger.
struct attention_fp8_second_shape {
    int first_keys = 1;
    int last_keys = 0;
    attention_fp8_shape shape = {};

    constexpr bool exists() const { return first_keys <= last_keys; }
    constexpr bool is_for(int seqlen_k) const { return first_keys <= seqlen_k && seqlen_k <= last_keys; }
};

// TFLOP/s of docs/results/attention_fp8.json at 1k, 2k, 4k, 8k, 16k keys (H200, head_dim 128):
//
//   fast, full         224 keys              694, 763, 842, 892, 882     128 keys              710, 754, 787, 809, 806
//   fast, causal       192                   512, 652, 761, 828, 870     128                   547, 659, 743, 789, 824
//   promoted, full     160, in two parts     645, 746, 782, 796, 794     128, in two parts     698, 746, 775, 787, 777
//   promoted, causal   160, in two parts     472, 599, 698, 767, 806     128, in two parts     517, 623, 702, 750, 770
//
// Promoted products of 128 keys in one part are up to 3% faster, but spill registers in some kernels (fp16, paged, e4m3
// output). Other head dims were not compared. With scales per block of keys both have 128 keys.
constexpr attention_fp8_second_shape attention_fp8_second_shape_for(int head_dim, fp8_accumulation sum,
                                                                    attention_register_demand demand, int kv_block) {
    const bool causal = demand == attention_register_demand::low;
    if (head_dim != 128 || kv_block != 0 || demand > attention_register_demand::low) return {};
    if (sum == fp8_accumulation::fast) return {0, causal ? 2048 : 1024, {.block_n = 128}};
    return {0, causal ? 4096 : 1024, {.block_n = 128, .product_columns = 64}};
}

}  // namespace imbrex
