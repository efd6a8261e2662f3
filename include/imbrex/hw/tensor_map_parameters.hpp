// The parameters of a tensor_map (cuTensorMapEncodeTiled): address, shape and strides of the tensor, and the box of a
// copy.
#pragma once

#include <cstdint>

namespace imbrex::hw {

enum class tensor_map_element { uint8, uint16, int32, float16, bfloat16, float32 };

struct tensor_map_parameters {
    void* pointer = nullptr;
    tensor_map_element element = tensor_map_element::uint8;
    int rank = 2;
    std::uint64_t extents[5] = {};        // in elements, innermost first
    std::uint64_t strides_bytes[4] = {};  // of each dimension but the innermost, which is contiguous
    std::uint32_t box[5] = {};            // in elements
    int swizzle_bytes = 0;                // 0, 32, 64 or 128
    bool narrow_l2_promotion = false;     // the neighbours of a box are copied much later, if ever
};

}  // namespace imbrex::hw
