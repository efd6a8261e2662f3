// Which way a register tile runs across the lanes of its warps. Matrix instructions want one operand by rows and the
// other by columns; a tile in column order is held as its transpose would be in row order, so that a transposed operand
// costs a different load instead of a shuffle. In the host world the order is only part of the type.
#pragma once

namespace imbrex {

enum class register_layout { row_major, column_major };

// Which operand of a matrix product a tile is.
enum class mma_operand { a, b };

}  // namespace imbrex
