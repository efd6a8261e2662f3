// Writes GGUF files (version 3): keys, tensor descriptions, then data at multiples of 32 bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/loading/gguf.hpp"

namespace imbrex::engine {

struct gguf_tensor {
    std::string name;
    weight_type type = weight_type::f32;
    std::vector<std::int64_t> shape;  // outermost first
};

// Called with consecutive parts of a tensor's bytes.
using byte_sink = std::function<void(std::span<const std::byte>)>;

// `write_data(i, sink)` passes the bytes of tensor i to the sink. general.alignment and split.* of the metadata are left
// out. Throws if a tensor gets too few or too many bytes, and if `to` cannot be written, with `name` in the message.
void write_gguf(std::ostream& to, const std::string& name, const gguf_metadata& metadata,
                const std::vector<gguf_tensor>& tensors,
                const std::function<void(std::size_t, const byte_sink&)>& write_data);

}  // namespace imbrex::engine
