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

// In ascending order. An aggregate, as nvcc needs of a template argument.
struct head_dim_set {
    static constexpr int capacity = 8;

    int items[capacity] = {};

    constexpr int count() const {
        int used = 0;
        while (used < capacity && items[used] != 0) ++used;
        return used;
    }
    std::string text() const {
        std::string all;
        for (int i = 0; i < count(); ++i) all += (i == 0 ? "" : ", ") + std::to_string(items[i]);
        return all;
    }
};

inline constexpr head_dim_set all_decode_head_dims{64, 96, 128, 192, 256};

// Calls call.template operator()<HeadDim>() for the first that is large enough; false if there is none.
template <head_dim_set Set, class Call>
bool visit_head_dim(int wanted, const Call& call) {
    bool found = false;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((!found && wanted <= Set.items[I] ? (found = true, call.template operator()<Set.items[I]>()) : void()), ...);
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
