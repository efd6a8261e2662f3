// Row values of vectorised rows on the device: all lanes of a row hold its value.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/cuda/vector_row.hpp>

namespace imbrex::hw {

// Calls f(row, value of each vector) for every row that this lane holds a part of; all lanes of a row do the same.
template <class Warp, class F, class T, int Rows, int Columns, class... Others>
IMBREX_KERNEL void visit_vector_row_values(const Warp&, use, source, F&& f,
                                           vector_row_values_fragment<T, Rows, Columns>& first, Others&... others) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int i = 0; i < Rows / partition::rows_at_once; ++i) {
        f(partition::row(i * partition::steps), first.values[i], others.values[i]...);
    }
}

// Stores each value to row_pointer(row), unless that is null. The first lane of a row writes, after all lanes have
// read.
template <class Warp, class T, int Rows, int Columns, class RowPointer>
IMBREX_KERNEL void store_vector_row_values(const Warp&, RowPointer&& row_pointer,
                                           const vector_row_values_fragment<T, Rows, Columns>& values, source) {
    using partition = vector_row_partition<Columns>;
    __syncwarp();
    if (lane() % partition::lanes != 0) return;
#pragma unroll
    for (int i = 0; i < Rows / partition::rows_at_once; ++i) {
        T* const to = row_pointer(partition::row(i * partition::steps));
        if (to != nullptr) *to = values.values[i];
    }
}

}  // namespace imbrex::hw
