// Where the matrices of an attention lie.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/tile/global_view.hpp>

#include <cstdint>

namespace imbrex {

// [batch, head, row, column]: any distances, columns one element apart.
template <class T>
using attention_view =
    global_view<T, dimensions<dynamic, dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, dynamic, 1>>;

// One number for each query of each head.
struct attention_rows {
    float* pointer = nullptr;
    std::int64_t batch_stride = 0;
    std::int64_t head_stride = 0;

    IMBREX_FN float* at(int batch, int head, int query) const {
        return pointer + batch * batch_stride + head * head_stride + query;
    }
};

}  // namespace imbrex
