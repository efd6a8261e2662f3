// How the elements of a register tile are distributed over the lanes of its warps. mma.sync takes A in row-major and B
// in column-major order. A column-major tile is stored as its transpose would be in row-major order, so a transposed
// operand costs a different load instead of shuffles. In the host world the layout is only part of the type.
#pragma once

namespace imbrex {

enum class register_layout { row_major, column_major };

// The operand of a matrix product that a tile is loaded for.
enum class mma_operand { a, b };

}  // namespace imbrex
