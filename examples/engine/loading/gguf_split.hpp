// Opens GGUF files from disk, including split ones: a model of several files NAME-00001-of-00003.gguf, whose keys
// split.no, split.count and split.tensors.count describe the division. The first file has the metadata.
#pragma once

#include <filesystem>

#include "engine/loading/gguf.hpp"

namespace imbrex::engine {

// The file, or all files of a split model, any of which may be given. The weights keep the mappings alive.
gguf_file open_gguf(const std::filesystem::path& path);

// The name of file `number` (from 0) of `count` in the place of `path`, which is one of them; empty if its name does not
// end in -00001-of-00003.gguf with this count.
std::filesystem::path split_gguf_path(const std::filesystem::path& path, int number, int count);

}  // namespace imbrex::engine
