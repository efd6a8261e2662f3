// A buffer in shared memory for a register tile that another block of the thread block cluster stores through DSMEM
// (ops/memory/cluster.hpp). Values lie in the order of the threads' registers, so the reading scope must equal the
// writing one.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
struct dsmem_buffer {
    static_assert(sizeof(T) == 4, "imbrex: a DSMEM buffer holds 32-bit elements");
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int bytes = Rows * Columns * static_cast<int>(sizeof(T));

    alignas(16) T values[Rows * Columns];
};

}  // namespace imbrex
