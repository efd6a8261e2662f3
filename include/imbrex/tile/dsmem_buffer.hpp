// Room in shared memory for a register tile that another block of the cluster sends (ops/memory/cluster.hpp), in whatever order its
// threads hold it: who takes it out has the same scope.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
struct dsmem_buffer {
    static_assert(sizeof(T) == 4, "imbrex: register tiles of 32-bit elements are sent");
    using element = T;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int bytes = Rows * Columns * static_cast<int>(sizeof(T));

    alignas(16) T values[Rows * Columns];
};

}  // namespace imbrex
