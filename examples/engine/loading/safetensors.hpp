// Hugging Face's weight files: eight bytes with the length of a JSON header, the header, which gives each tensor's type, shape
// and place, then the data, without a hole. A model may be cut into shards, named by an index file. Such files come from
// strangers, so every number is checked before it is used.
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

// One file's content. The weights refer to the bytes. `name` is for the sentences of refusal.
safetensors_file read_safetensors(std::span<const std::byte> bytes, const std::string& name);

// The index of a model in shards: tensor name -> file name, which lies in the index's own folder.
std::map<std::string, std::string> read_shard_index(std::span<const std::byte> bytes, const std::string& name);

// A file, or a folder with model.safetensors or with model.safetensors.index.json and its shards.
weight_set open_safetensors(const std::filesystem::path& path);

}  // namespace imbrex::engine
