// Which kernel attends, in which shape and in which order: the tables of choices, in one place.
//
//   what                                                         kernel
//   the device is not a Hopper, TMA cannot read the
//   tensors (distances that are not multiples of 16 bytes), or
//   there are no keys                                            ampere_class    any distances
//   otherwise                                                    hopper
#pragma once

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>

#include <algorithm>
#include <string>
#include <type_traits>

namespace imbrex {

enum class attention_kernel_kind { ampere_class, hopper };

struct attention_dispatch {
    bool hopper;        // the device, and the program has code for it
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

// Depths of keys and of values that kernels are made for. Others are taken by the next larger ones, whose further columns are
// zero.
struct attention_head_dims {
    int qk;
    int v;

    constexpr attention_head_dims(int both) : qk(both), v(both) {}
    constexpr attention_head_dims(int qk, int v) : qk(qk), v(v) {}
    constexpr bool operator==(const attention_head_dims&) const = default;
    constexpr bool fits(const attention_head_dims& wanted) const { return wanted.qk <= qk && wanted.v <= v; }
};

// A list of such depths, each of which a program has kernels of. Who knows his depth names only that, and compiles only that:
// attention_head_dim_list<128>, or attention_head_dim_list<attention_head_dims(192, 128)>.
template <attention_head_dims... HeadDims>
struct attention_head_dim_list {
    static constexpr int count = sizeof...(HeadDims);

    // The number of the first with room for these, or `count`.
    static constexpr int index_for(const attention_head_dims& wanted) {
        int index = 0;
        static_cast<void>(((HeadDims.fits(wanted) || (++index, false)) || ...));
        return index;
    }
    // visit(integral_constant-like tag with the depths) of that number.
    template <class Visit>
    static void visit(int index, const Visit& call) {
        int here = 0;
        ((here++ == index ? call.template operator()<HeadDims>() : void()), ...);
    }
    static std::string text() {
        std::string all;
        ((all += (all.empty() ? "" : ", ") + std::to_string(HeadDims.qk) + " x " + std::to_string(HeadDims.v)), ...);
        return all;
    }
};

using all_attention_head_dims = attention_head_dim_list<64, 96, 128, attention_head_dims(192, 128), 192, 256>;

// How many registers a kernel wants besides those of its tiles. Results in fp32 want them for addresses, and so do, even more,
// scores that read memory for each pair of query and key, for what is on its way.
enum class attention_register_demand { lowest, low, medium, high, highest };

template <class Mask, class Score, attention_output_mode Mode = attention_output_mode::normalised>
constexpr attention_register_demand attention_register_demand_of() {
    if (score_reads_memory<Score>()) return attention_register_demand::highest;
    if (Mode != attention_output_mode::normalised) return attention_register_demand::high;
    if (!score_is_identity<Score>()) return attention_register_demand::medium;
    if (std::is_same_v<Mask, full_mask>) return attention_register_demand::lowest;
    return std::is_same_v<Mask, causal_mask> ? attention_register_demand::low : attention_register_demand::medium;
}

// Groups of 64 queries and the widest tiles of keys for which shared memory and registers suffice.
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
        // The multiprocessor's registers, dealt out.
        if (chosen.consumer_warpgroups == 1) {
            shape.consumer_registers = 248;
            shape.pingpong = false;
        } else if (chosen.consumer_warpgroups == 3) {
            shape.producer_registers = 32;
            shape.consumer_registers = 160;
        } else if (one.head_dims == 128 && demand <= attention_register_demand::medium &&
                   (rescaling == attention_rescaling::exact || demand == attention_register_demand::medium)) {
            // Fewer than there are: the compiler then finds an order in which the exponentials follow one another more evenly, which
            // is 1 to 3% faster. (Not with a relaxed softmax, if there is nothing but a causal mask or none.)
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
