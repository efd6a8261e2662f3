// Tensors of any rank and strides as the rows that the elementwise kernels take (imbrex/kernels/row_view.hpp).
#pragma once

#include "operator.hpp"

#include <initializer_list>
#include <utility>
#include <vector>

namespace imbrex_torch {

enum class row_layout {
    rows,             // [.., columns]: all dimensions but the last collapse to two strides
    heads_of_tokens,  // [.., sequence, heads, columns]: all dimensions but the last two collapse to one stride
};

// Raises ValueError unless the tensor has the dimensions of the layout.
void require_rank(const Tensor& t, const char* name, row_layout layout);

// Raises TypeError unless `t` has the dtype of `like`, and ValueError unless it has its shape.
void require_same_kind(const Tensor& t, const char* name, const Tensor& like, const char* like_name);

// Raises TypeError unless the dtype is bf16, fp16 or float.
void require_row_type(const Tensor& t, const char* name);

// Whether the strides of the tensor allow the layout without a copy.
bool collapses(const Tensor& t, row_layout layout);

// Tensors of one shape as [tokens, heads, columns] with the same extents. A tensor whose strides do not allow it is
// replaced by a contiguous copy.
std::vector<imbrex::bindings::tensor> described_rows(row_layout layout,
                                                     std::initializer_list<std::pair<const char*, Tensor*>> tensors);

// A tensor that a kernel overwrites: if described_rows replaces it, `finish` copies the result back.
class overwritten {
  public:
    explicit overwritten(const Tensor& t) : given_(t), rows_(t) {}
    Tensor* rows() { return &rows_; }
    void finish();  // after the launch

  private:
    Tensor given_, rows_;
};

}  // namespace imbrex_torch
