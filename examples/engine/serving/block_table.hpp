// The blocks of one sequence in each cache group, and the leading ones that are in the prefix cache.
#pragma once

#include <cstdint>
#include <vector>

namespace imbrex::engine {

inline constexpr int no_block = -1;

struct block_table {
    // Of each group: entry i holds tokens [i * block_size, (i + 1) * block_size), or is no_block behind the window. All
    // empty, or one per group.
    std::vector<std::vector<int>> groups{};
    std::int64_t node = 0;  // of the prefix tree: the last full block that is in the prefix cache
    int cached = 0;         // full blocks up to that node

    bool empty() const { return groups.empty() || groups.front().empty(); }
};

}  // namespace imbrex::engine
