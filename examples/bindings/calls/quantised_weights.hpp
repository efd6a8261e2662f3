// Weights that are quantised and prepacked: the arguments of the bindings pack_weights and linear_quantised.
//
// `packed` is one array of bytes: the tiles of pack_weights, and after them the scales of formats with one scale per row.
#pragma once

#include "../tensor.hpp"

#include <cstddef>
#include <string>

namespace imbrex::bindings {

struct pack_weights_call {
    int rows = 0, k = 0;
    tensor values;       // int8 or e4m3 [rows, k]; int4 and e2m1: uint8 [rows, k / 2], the first of two in the low bits
    tensor scales = {};  // [rows] fp32, or [rows, k / group]: of the type of the activations, ue8m0 as uint8 with e2m1
    tensor packed = {};
    std::size_t* packed_bytes = nullptr;  // if given, only this is computed
};

struct linear_quantised_call {
    int rows = 0, k = 0;  // of the weights
    tensor packed;
    tensor x = {};            // [m, k]
    tensor bias = {};         // [rows]; optional
    tensor out = {};          // [m, rows]
    tensor dequantised = {};  // instead of x and out: becomes the weights [rows, k], without the scales of rows
};

// How weights are quantised. A group of 0: one scale per row.
struct weight_format {
    std::string name;  // int4, int8, fp8 or mxfp4
    int group = 0;
    element activations = element::none;

    // The template argument of a variant: int4_weights<bf16, 128, bf16, 512>. Its block_k is the fastest that leaves
    // enough stages (docs/results/gemm.md).
    std::string type() const {
        const std::string in = type_of(activations);
        const bool grouped = group == 32 || group == 64 || group == 128;
        require(activations == element::bf16 || activations == element::fp16, "dtype: ", name_of(activations),
                "; must be bf16 or fp16");
        if (name == "mxfp4" && group == 32) return str_cat("mxfp4_weights<", in, ", 512>");
        if (name == "fp8" && group == 0) return str_cat("e4m3_weights<", in, ", 256>");
        if (name == "int8" && group == 0) return str_cat("int8_weights<", in, ", 256>");
        if (name == "int8" && grouped)
            return str_cat("grouped_weights<", in, ", std::int8_t, ", group, ", ", in, ", 256>");
        if (name == "int4" && grouped) return str_cat("int4_weights<", in, ", ", group, ", ", in, ", ", 4 * group, ">");
        require(false, "format: ", name, " in groups of ", group,
                "; int4 has groups of 32, 64 or 128, int8 the same or one scale per row (0), fp8 one scale per row, "
                "mxfp4 groups of 32");
        return {};
    }
};

}  // namespace imbrex::bindings
