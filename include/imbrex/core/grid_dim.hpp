// The index of a block in its grid, or the size of the grid in blocks (blockIdx, gridDim).
#pragma once

namespace imbrex {

struct grid_dim {
    int x = 1;
    int y = 1;
    int z = 1;

    friend constexpr bool operator==(const grid_dim&, const grid_dim&) = default;
};

}  // namespace imbrex
