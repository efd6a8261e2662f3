// Rows of a weight converted to another type: numbers are rounded, blocks quantised.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/loading/weights.hpp"

namespace imbrex::engine {

// Whether convert_rows writes this type: f32, f16, bf16, q4_0, q5_0, q8_0.
bool can_convert_to(weight_type type);

// Bytes of a row in this type. The row must be whole blocks.
std::size_t row_bytes(weight_type type, std::int64_t columns);

// Rows `first` to `first + rows`, on all cores. A weight that is not finite throws with its place, if blocks are made.
void convert_rows(const weight& from, std::int64_t first, std::int64_t rows, weight_type type, std::byte* to);

}  // namespace imbrex::engine
