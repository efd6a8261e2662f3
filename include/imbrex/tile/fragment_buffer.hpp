// A register tile in shared or global memory, its values in the order of the threads' registers: stores and loads are
// vectorised and free of bank conflicts, but only a register tile of the same type and scope can read it. For what one
// scope sets aside and the same kind of scope reads: partial sums (ops/memory/fragment_buffer.hpp), and the destination
// of a DSMEM store by another block of the cluster (ops/memory/cluster.hpp).
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
struct fragment_buffer {
    static_assert(sizeof(T) == 4, "imbrex: a fragment buffer holds 32-bit elements");
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int bytes = Rows * Columns * static_cast<int>(sizeof(T));

    alignas(16) T values[Rows * Columns];
};

}  // namespace imbrex
