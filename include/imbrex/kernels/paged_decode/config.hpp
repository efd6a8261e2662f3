// Compile-time configuration of paged_decode and of the kernels built on it: which head_dims to compile, and what to write.
//
//     using decode = paged_decode<bf16, decode_config{.head_dims = {128}}, causal_mask>;
//
// List only the head_dims you use: each one is several kernels to compile. A problem with another head_dim takes the next larger one, padded
// with zeros.
#pragma once

#include <imbrex/core/kernel_targets.hpp>
#include <imbrex/kernels/attention/output.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace imbrex {

// In ascending order, 0 after the last: head_dim_set{64, 128}. Single members, because nvcc cannot spell an array in a template argument.
struct head_dim_set {
    static constexpr int capacity = 8;

    int d0 = 0, d1 = 0, d2 = 0, d3 = 0, d4 = 0, d5 = 0, d6 = 0, d7 = 0;

    constexpr int at(int index) const {
        const int all[capacity] = {d0, d1, d2, d3, d4, d5, d6, d7};
        return all[index];
    }
    constexpr int count() const {
        int used = 0;
        while (used < capacity && at(used) != 0) ++used;
        return used;
    }
    std::string text() const {
        std::string all;
        for (int i = 0; i < count(); ++i) all += (i == 0 ? "" : ", ") + std::to_string(at(i));
        return all;
    }
};

inline constexpr head_dim_set all_decode_head_dims{64, 96, 128, 192, 256};

// Calls call.template operator()<HeadDim>() for the first that is large enough; false if there is none.
template <head_dim_set Set, class Call>
bool visit_head_dim(int wanted, const Call& call) {
    bool found = false;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((!found && wanted <= Set.at(static_cast<int>(I))
              ? (found = true, call.template operator()<Set.at(static_cast<int>(I))>())
              : void()),
         ...);
    }
    (std::make_index_sequence<Set.count()>{});
    return found;
}

struct decode_config {
    head_dim_set head_dims = all_decode_head_dims;
    attention_output_mode output = attention_output_mode::normalised;
    kernel_targets targets = kernel_targets::all;
};

}  // namespace imbrex
