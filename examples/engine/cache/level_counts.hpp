// What has happened on a level of the prefix cache below the KV cache, for statistics.
#pragma once

#include <cstdint>

namespace imbrex::engine {

struct level_counts {
    std::int64_t capacity_bytes = 0, held_bytes = 0;
    std::int64_t saved_blocks = 0, saved_bytes = 0;    // arrived from the level above
    std::int64_t loaded_blocks = 0, loaded_bytes = 0;  // returned to the KV cache
    std::int64_t evicted_blocks = 0;
    std::int64_t lost_blocks = 0;     // left the level above and found no place
    std::int64_t damaged_blocks = 0;  // files that could not be used
};

}  // namespace imbrex::engine
