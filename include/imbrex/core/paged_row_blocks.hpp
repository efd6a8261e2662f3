// Rows of global memory in blocks of 16, as in the pages of a paged KV cache: the rows of a block are `stride` elements
// apart, the blocks are anywhere. The block table is read once per 16 rows.
#pragma once

#include <cstdint>

namespace imbrex {

// The rows from `begin` up to but not including `end` exist. block_pointer(number) returns the address of row
// 16 * number. It is called only if at least one row of the block exists.
template <class Pointer>
struct paged_row_blocks {
    static constexpr int rows_in_block = 16;

    Pointer block_pointer;
    std::int64_t stride;
    int begin;
    int end;
};

}  // namespace imbrex
