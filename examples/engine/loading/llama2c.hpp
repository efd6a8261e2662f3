// llama2.c's checkpoints: a few whole numbers, then all weights in f32, one kind after the other, each for all layers. The
// first kind of file (legacy) has nothing that tells it from any other bytes, so its length must be exactly right; version 1
// begins with "ak42" and has its norms first. The rotation is of neighbours, and its tables, which the legacy file carries,
// are not used.
#pragma once

#include <span>
#include <string>

#include "engine/loading/model_config.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine {

struct llama2c_file {
    model_config config;
    weight_set weights;  // under Hugging Face's names; they refer to the bytes
};

llama2c_file read_llama2c(std::span<const std::byte> bytes, const std::string& name);

}  // namespace imbrex::engine
