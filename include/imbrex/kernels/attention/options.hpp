// Compile-time options of attention_forward: one class-type template argument instead of a list of positions.
//
//     constexpr attention_options options{.head_dims = {128}, .kv = kv_layout::paged};
//     using attention = attention_forward<bf16, options, causal_mask>;
//
// List only the head_dims you use: each one is a kernel to compile. A problem with another head_dim uses the next larger
// one, padded with zeros.
#pragma once

#include <imbrex/core/kernel_targets.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/problem.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace imbrex {

// head_dim of Q and K, and of V.
struct attention_head_dims {
    int qk = 0;
    int v = 0;

    constexpr attention_head_dims() = default;
    constexpr attention_head_dims(int both) : qk(both), v(both) {}
    constexpr attention_head_dims(int qk, int v) : qk(qk), v(v) {}
    constexpr bool operator==(const attention_head_dims&) const = default;
    constexpr bool fits(const attention_head_dims& wanted) const { return wanted.qk <= qk && wanted.v <= v; }
};

// The head_dims to compile kernels for, in the order in which they are tried: attention_head_dim_set{64, 128}. Single members, because nvcc
// cannot spell an array in a template argument.
struct attention_head_dim_set {
    static constexpr int capacity = 8;

    attention_head_dims d0 = {}, d1 = {}, d2 = {}, d3 = {}, d4 = {}, d5 = {}, d6 = {}, d7 = {};

    constexpr attention_head_dims at(int index) const {
        const attention_head_dims all[capacity] = {d0, d1, d2, d3, d4, d5, d6, d7};
        return all[index];
    }
    constexpr int count() const {
        int used = 0;
        while (used < capacity && at(used).qk != 0) ++used;
        return used;
    }
    // The index of the first that fits, or count().
    constexpr int index_for(const attention_head_dims& wanted) const {
        int index = 0;
        while (index < count() && !at(index).fits(wanted)) ++index;
        return index;
    }
    std::string text() const {
        std::string all;
        for (int i = 0; i < count(); ++i) {
            all += (i == 0 ? "" : ", ") + std::to_string(at(i).qk) + " x " + std::to_string(at(i).v);
        }
        return all;
    }
};

inline constexpr attention_head_dim_set all_attention_head_dims{64, 96, 128, attention_head_dims(192, 128), 192, 256};

// Calls call.template operator()<Set.at(index)>().
template <attention_head_dim_set Set, class Call>
void visit_head_dims(int index, const Call& call) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((static_cast<int>(I) == index ? call.template operator()<Set.at(static_cast<int>(I))>() : void()), ...);
    }
    (std::make_index_sequence<Set.count()>{});
}

struct attention_options {
    attention_head_dim_set head_dims = all_attention_head_dims;
    kv_layout kv = kv_layout::contiguous;
    attention_output_mode output = attention_output_mode::normalised;
    attention_rescaling rescaling = attention_rescaling::exact;
    kernel_targets targets = kernel_targets::all;
};

}  // namespace imbrex
