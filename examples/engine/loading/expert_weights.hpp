// The weights of a mixture of experts, whatever the file: mlp.router and, for each expert, a gated MLP of the names of a
// dense one.
//
//     mlp.router.weight                                [experts, hidden]
//     mlp.experts.N.gate_proj.weight, .up_proj.weight  [intermediate, hidden]
//     mlp.experts.N.down_proj.weight                   [hidden, intermediate]          each with a .bias if the file has it
//
//     file                      expert weights                                                         becomes
//     GGUF                      one tensor for all experts, [experts, rows, columns]                   views of it
//     Mixtral                   block_sparse_moe.experts.N.w1 (gate), .w2 (down), .w3 (up)             new names
//     Qwen3-MoE                 those above
//     early GGUF of Mixtral     ffn_gate.N, ffn_down.N, ffn_up.N (model_files.cpp)                     new names
//     GPT-OSS, MXFP4            gate_up_proj_blocks, _scales; down_proj_blocks, _scales                ggml's blocks mxfp4
//     GPT-OSS, unquantised      gate_up_proj, down_proj: [experts, columns, rows]                      transposed
//
// In GPT-OSS gate and up are one tensor: row 2 i is row i of the gate, row 2 i + 1 is row i of up. Both MXFP4 layouts have
// a power of two and 16 bytes of nibbles for 32 elements: neighbours share a byte in safetensors, elements i and i + 16
// in ggml's blocks. The numbers are the same.
#pragma once

#include <string>

#include "engine/loading/weights.hpp"

namespace imbrex::engine {

// What converted matrices hold: their numbers, or nothing, if only types and shapes are wanted.
enum class weight_contents { given, none };

// Weights of other names stay as they are. Throws for shapes that do not fit together; `file` is used in messages.
// Converted weights own their memory, and the pages of their sources in mapped files are dropped.
weight_set with_separate_experts(const weight_set& weights, const std::string& file,
                                 weight_contents contents = weight_contents::given);

}  // namespace imbrex::engine
