// The arguments of the binding quantise_fp8.
#pragma once

#include "../tensor.hpp"

#include <imbrex/kernels/rope/style.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace imbrex::bindings {

struct quantise_fp8_call {
    tensor x;    // [batch, row, head, head_dim], or [row, head, head_dim] of a varlen batch
    tensor out;  // the same in e4m3
    // fp32, contiguous: one number, [batch, heads], or with block_rows > 0 [batch, heads, blocks].
    tensor scales;
    int block_rows = 0;
    bool scales_given = false;  // read instead of computed
    tensor seqused = {};
    tensor cu_seqlens = {};
    tensor inv_freq = {};  // int64, fixed point (rope/frequencies.hpp): one per pair of columns
    rope_style style = rope_style::half_split;
    float attention_factor = 1;
    tensor positions = {};  // int32 [batch, row] or [row]; not given: rows of a sequence are numbered from 0
    std::optional<std::uint64_t> hadamard_seed = {};
};

// The template argument of a variant: bf16.
inline std::string quantise_fp8_variant(const quantise_fp8_call& in) {
    return str_cat("quantise_fp8, ", type_of(in.x.type));
}

}  // namespace imbrex::bindings
