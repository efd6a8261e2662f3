// The descriptor by which TMA addresses a tensor: opaque bytes that the driver encodes (hw/cuda/encode.hpp) and the
// copy engine reads. The host world carries it unused, so that kernel arguments have the same bytes in both worlds.
#pragma once

namespace imbrex::hw {

struct alignas(64) tensor_map {
    unsigned char bytes[128];
};

// Where a copy starts, innermost dimension first: column, row, then the batch dimensions outwards.
struct tma_coordinate {
    int at[5];
    bool out_of_bounds_fill;   // for the checker: this tile may have nothing of the tensor in it
    bool evict_first = false;  // nobody reads it again soon: it need not stay in the caches
};

}  // namespace imbrex::hw
