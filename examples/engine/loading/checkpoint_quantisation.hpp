// Quantised Hugging Face checkpoints: fp8, GPTQ, AWQ and compressed-tensors. Their tensors (packed integers, zero
// points, scales) become one weight each, in a type of weight_type.hpp:
//
//     4-bit, symmetric                              q4_0     exact
//     4-bit with zero points; 8-bit, symmetric      q8_0     exact
//     fp8; 8-bit with zero points; GPTQ with act-order (desc_act); groups that are not a multiple of 32
//                                                   bf16     rounded to 8 bits
//
// Exact up to the scales, which are rounded to fp16 if the file has them in another type. Scales beyond the normal
// numbers of fp16 make the weight bf16.
#pragma once

#include <string>

#include "engine/loading/json_text.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine {

// `quantisation` is the "quantization_config" of config.json. Scales of activations and of a KV cache are dropped: the
// engine quantises activations by itself. Throws for an unknown method, naming it. Converted weights own their memory,
// and the pages of their sources in mapped files are dropped. "mxfp4" changes nothing: expert_weights.hpp reads it.
weight_set read_quantised_checkpoint(const weight_set& weights, const json& quantisation, const std::string& file);

}  // namespace imbrex::engine
