// Rows of global memory that lie sixteen by sixteen, as those of pages do: each sixteen one behind the other, and the sixteens
// anywhere. So a place is looked up once for sixteen rows.
#pragma once

#include <cstdint>

namespace imbrex {

// Rows from `begin` up to, not including, `end` exist. block_pointer(number) is where row 16 * number is, or would be, and is asked only
// if one of its sixteen exists. The next row of a sixteen lies `stride` elements behind.
template <class Pointer>
struct paged_row_blocks {
    static constexpr int rows_in_block = 16;

    Pointer block_pointer;
    std::int64_t stride;
    int begin;
    int end;
};

}  // namespace imbrex
