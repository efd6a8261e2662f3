// Kernel selection for attention: which kernel, head dims and tile shape (block_m x block_n) to use.
//
//   condition                                                    kernel
//   the device is not Hopper; a stride is not a multiple of
//   16 bytes, so that TMA cannot copy; or there are no keys      ampere_class
//   otherwise                                                    hopper
#pragma once

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/options.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>

#include <algorithm>
#include <type_traits>

namespace imbrex {

enum class attention_kernel_kind { ampere_class, hopper };

struct attention_dispatch {
    bool hopper;        // the device is Hopper, and the program has code for it
    bool tma_can_copy;  // Q, K, V, and O
    int seqlen_k;
};

constexpr attention_kernel_kind choose_attention_kernel(const attention_dispatch& s) {
    return s.hopper && s.tma_can_copy && s.seqlen_k > 0 ? attention_kernel_kind::hopper
                                                        : attention_kernel_kind::ampere_class;
}

constexpr const char* name_of(attention_kernel_kind one) {
    return one == attention_kernel_kind::hopper ? "hopper" : "ampere_class";
}

// How many registers a kernel needs besides its tiles. fp32 outputs need them for addresses; a score_mod that reads
// memory for each element needs even more, for loads in flight.
enum class attention_register_demand { lowest, low, medium, high, highest };

template <class Mask, class Score, attention_output_mode Mode = attention_output_mode::normalised>
constexpr attention_register_demand attention_register_demand_of() {
    if (score_reads_memory<Score>()) return attention_register_demand::highest;
    if (Mode != attention_output_mode::normalised) return attention_register_demand::high;
    if (!score_is_identity<Score>()) return attention_register_demand::medium;
    if (std::is_same_v<Mask, full_mask>) return attention_register_demand::lowest;
    return std::is_same_v<Mask, causal_mask> ? attention_register_demand::low : attention_register_demand::medium;
}

// The number of consumer warpgroups and the widest key tiles that fit shared memory and registers.
constexpr attention_shape attention_shape_for(attention_head_dims head_dims, attention_register_demand demand,
                                              attention_rescaling rescaling = attention_rescaling::exact) {
    struct tiles {
        int consumer_warpgroups;
        int block_n;
    };
    struct row {
        attention_head_dims head_dims;
        tiles by_demand[5];
    };
    constexpr row table[] = {
        // lowest, low, medium, high, highest
        {64, {{3, 128}, {3, 128}, {3, 96}, {3, 96}, {2, 64}}},            //
        {96, {{3, 112}, {3, 112}, {2, 160}, {2, 160}, {2, 80}}},          //
        {128, {{2, 128}, {2, 128}, {2, 128}, {2, 128}, {2, 48}}},         //
        {{192, 128}, {{2, 128}, {2, 128}, {2, 128}, {2, 112}, {2, 64}}},  //
        {192, {{2, 96}, {2, 96}, {2, 112}, {2, 48}, {2, 48}}},            //
        {256, {{2, 80}, {2, 80}, {2, 64}, {1, 32}, {1, 32}}},             //
    };
    for (const row& one : table) {
        if (!one.head_dims.fits(head_dims)) continue;
        const tiles chosen = one.by_demand[static_cast<int>(demand)];
        attention_shape shape{
            .consumer_warpgroups = chosen.consumer_warpgroups, .block_n = chosen.block_n, .rescaling = rescaling};
        // The register file of an SM, divided between producer and consumers.
        if (chosen.consumer_warpgroups == 1) {
            shape.consumer_registers = 248;
            shape.pingpong = false;
        } else if (chosen.consumer_warpgroups == 3) {
            shape.producer_registers = 32;
            shape.consumer_registers = 160;
        } else if (one.head_dims == 128 && demand <= attention_register_demand::medium &&
                   (rescaling == attention_rescaling::exact || demand == attention_register_demand::medium)) {
            // Fewer registers than available: the compiler then finds an order in which the exponentials are spread
            // more evenly, 1 to 3% faster. (Not with lazy rescaling and a causal mask or none.)
            shape.producer_registers = 40;
            shape.consumer_registers = 224;
        } else if (one.head_dims == 128 || demand > attention_register_demand::low) {
            shape.producer_registers = 40;
            shape.consumer_registers = 232;
        }
        return shape;
    }
    return {};
}

}  // namespace imbrex
