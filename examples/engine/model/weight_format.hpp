// Formats of weights in memory.
#pragma once

namespace imbrex::engine {

// The format of matrices; norms and biases are float. e4m3, int8 and int4 are quantised on load (quantization); mixed is
// a type for each matrix (weight_mixture.hpp).
enum class weight_format { as_in_file, f32, f16, bf16, e4m3, int8, int4, mixed };

// Size of a mixture.
inline constexpr double usual_bits_per_weight = 5.0;

const char* name_of(weight_format format);

}  // namespace imbrex::engine
