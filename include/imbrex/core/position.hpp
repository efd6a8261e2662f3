// A place in a grid of blocks, or its size.
#pragma once

namespace imbrex {

struct position {
    int x = 1;
    int y = 1;
    int z = 1;

    friend constexpr bool operator==(const position&, const position&) = default;
};

}  // namespace imbrex
