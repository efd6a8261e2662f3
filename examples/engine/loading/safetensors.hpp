// Reads safetensors files: an 8-byte header length, a JSON header with dtype, shape and offsets of each tensor, then
// contiguous data. A model may be split into shards with an index file. Files are untrusted: every number is checked
// before use.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "engine/loading/weights.hpp"

namespace imbrex::engine {

struct safetensors_file {
    weight_set weights;
    std::map<std::string, std::string> metadata;
};

// The content of one file. The weights point into the bytes. `name` is used in error messages.
safetensors_file read_safetensors(std::span<const std::byte> bytes, const std::string& name);

// The index of a sharded model: tensor name -> file name in the folder of the index.
std::map<std::string, std::string> read_shard_index(std::span<const std::byte> bytes, const std::string& name);

// A file, or a folder with model.safetensors or with model.safetensors.index.json and its shards.
weight_set open_safetensors(const std::filesystem::path& path);

}  // namespace imbrex::engine
