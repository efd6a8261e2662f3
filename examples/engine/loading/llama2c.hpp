// Reads llama2.c checkpoints: a header of integers, then all weights in f32, tensor by tensor, each for all layers.
// Legacy files have no magic number, so their size must match exactly; version 1 begins with "ak42" and stores the
// norms first. RoPE is interleaved; the RoPE tables of legacy files are skipped.
#pragma once

#include <span>
#include <string>

#include "engine/loading/model_config.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine {

struct llama2c_file {
    model_config config;
    weight_set weights;  // with Hugging Face names; they point into the bytes
};

llama2c_file read_llama2c(std::span<const std::byte> bytes, const std::string& name);

}  // namespace imbrex::engine
