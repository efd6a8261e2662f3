// Formats of weights in memory.
#pragma once

namespace imbrex::engine {

// The format of matrices; norms and biases are float. e4m3, int8 and int4 are quantised on load (quantization).
enum class weight_format { as_in_file, f32, bf16, e4m3, int8, int4 };

const char* name_of(weight_format format);

}  // namespace imbrex::engine
