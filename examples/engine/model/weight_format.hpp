// The forms in which weights are kept in memory.
#pragma once

namespace imbrex::engine {

// How weights of matrices are kept. The others (norms, biases) are floats.
enum class weight_format { as_in_file, f32, bf16, e4m3, int8, int4 };

const char* name_of(weight_format format);

}  // namespace imbrex::engine
