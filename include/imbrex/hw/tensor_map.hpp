// The TMA descriptor of a tensor (CUtensorMap): opaque bytes that the driver encodes (hw/cuda/encode.hpp) and TMA
// reads. The host world carries it unused, so that kernel arguments have the same bytes in both worlds.
#pragma once

namespace imbrex::hw {

struct alignas(64) tensor_map {
    unsigned char bytes[128];
};

// The start of a copy, innermost dimension first: column, row, then the batch dimensions.
struct tma_coordinate {
    int at[5];
    bool out_of_bounds_fill;   // for the checker: this tile may be wholly out of bounds
    bool evict_first = false;  // L2 cache hint
};

}  // namespace imbrex::hw
