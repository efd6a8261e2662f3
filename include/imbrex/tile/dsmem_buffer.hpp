// A buffer in shared memory for a register tile that another block of the thread block cluster stores through DSMEM
// (ops/memory/cluster.hpp). Values lie in the order of the threads' registers, so the reading scope must equal the
// writing one.
#pragma once

#include <imbrex/tile/fragment_buffer.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
using dsmem_buffer = fragment_buffer<T, Rows, Columns>;

}  // namespace imbrex
