// A cache group: layers that see the same tokens share a pool of blocks and a block table (block_manager.hpp).
#pragma once

#include <cstdint>

namespace imbrex::engine {

struct cache_group {
    int blocks = 0;
    int window = 0;                // visible tokens, including the current one; 0: all
    std::int64_t block_bytes = 1;  // for statistics
};

}  // namespace imbrex::engine
