// Values of rows that a warp holds in chunks: all lanes of a row have its value.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/chunks.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// Calls f(row, value of each vector) for every row that this lane has a part of; all lanes of a row do so alike.
template <class Warp, class F, class T, int Rows, int Columns, class... Others>
IMBREX_KERNEL void visit_chunk_rows(const Warp&, use, source, F&& f, chunk_row_fragment<T, Rows, Columns>& first,
                                    Others&... others) {
    using dealing = chunk_dealing<Columns>;
#pragma unroll
    for (int i = 0; i < Rows / dealing::rows_at_once; ++i) {
        f(dealing::row(i * dealing::steps), first.values[i], others.values[i]...);
    }
}

// Each value to where place(row) says, unless that is null. A row's first lane writes it, once all lanes have what they read there.
template <class Warp, class T, int Rows, int Columns, class Place>
IMBREX_KERNEL void store_chunk_row_values(const Warp&, Place&& place,
                                          const chunk_row_fragment<T, Rows, Columns>& values, source) {
    using dealing = chunk_dealing<Columns>;
    __syncwarp();
    if (lane() % dealing::lanes != 0) return;
#pragma unroll
    for (int i = 0; i < Rows / dealing::rows_at_once; ++i) {
        T* const to = place(dealing::row(i * dealing::steps));
        if (to != nullptr) *to = values.values[i];
    }
}

}  // namespace imbrex::hw
