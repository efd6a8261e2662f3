#include "rows.hpp"

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>

namespace imbrex_torch {

namespace {

// Adjacent dimensions that can be indexed as one.
struct dimension_group {
    std::int64_t size;
    c10::SmallVector<std::int64_t, 4> strides;  // of each tensor
};
using dimension_groups = c10::SmallVector<dimension_group, 4>;

std::int64_t kept_dimensions(row_layout layout) {
    return layout == row_layout::rows ? 1 : 2;
}
std::size_t allowed_groups(row_layout layout) {
    return layout == row_layout::rows ? 2 : 1;
}

// The leading dimensions of tensors of one shape, the innermost group first.
dimension_groups groups_of(at::ArrayRef<Tensor> tensors, row_layout layout) {
    dimension_groups groups;
    if (tensors[0].numel() == 0) return groups;
    for (std::int64_t i = tensors[0].dim() - kept_dimensions(layout) - 1; i >= 0; --i) {
        const std::int64_t size = tensors[0].size(i);
        if (size == 1) continue;
        bool joins = !groups.empty();
        for (std::size_t t = 0; joins && t < tensors.size(); ++t) {
            joins = tensors[t].stride(i) == groups.back().strides[t] * groups.back().size;
        }
        if (joins) {
            groups.back().size *= size;
            continue;
        }
        groups.push_back({size, {}});
        for (const Tensor& one : tensors) groups.back().strides.push_back(one.stride(i));
    }
    return groups;
}

// Tensor number `index` of those that the groups are of.
imbrex::bindings::tensor described_rows(const Tensor& t, const char* name, row_layout layout,
                                        const dimension_groups& groups, std::size_t index) {
    const std::int64_t columns = t.size(-1);
    std::int64_t sizes[] = {t.numel() == 0 ? 0 : 1, 1, columns}, strides[] = {columns, columns, 1};
    const auto set = [&](int dimension, const dimension_group& group) {
        sizes[dimension] = group.size;
        strides[dimension] = group.strides[index];
    };
    if (!groups.empty()) set(0, groups.back());
    if (groups.size() > 1) set(1, groups.front());
    if (layout == row_layout::heads_of_tokens) {
        sizes[1] = t.size(-2);
        strides[1] = t.stride(-2);
    }
    return described(t, name, sizes, strides);
}

}  // namespace

void require_rank(const Tensor& t, const char* name, row_layout layout) {
    TORCH_CHECK_VALUE(t.dim() >= (layout == row_layout::rows ? 1 : 3), name, ": shape ", t.sizes(), "; ",
                      layout == row_layout::rows ? "[.., columns]" : "[.., sequence, heads, head_dim]", " is needed");
}

void require_same_kind(const Tensor& t, const char* name, const Tensor& like, const char* like_name) {
    TORCH_CHECK_TYPE(t.scalar_type() == like.scalar_type(), name, ".dtype: ", t.scalar_type(), "; must be ",
                     like.scalar_type(), ", that of ", like_name);
    TORCH_CHECK_VALUE(t.sizes() == like.sizes(), name, ": shape ", t.sizes(), "; must be ", like.sizes(), ", that of ",
                      like_name);
}

void require_row_type(const Tensor& t, const char* name) {
    const auto type = t.scalar_type();
    TORCH_CHECK_TYPE(type == at::kBFloat16 || type == at::kHalf || type == at::kFloat, name, ".dtype: ", type,
                     "; must be BFloat16, Half or Float");
}

bool collapses(const Tensor& t, row_layout layout) {
    const bool has_rows = t.size(-1) <= 1 || t.stride(-1) == 1;
    return t.numel() == 0 || (has_rows && groups_of(t, layout).size() <= allowed_groups(layout));
}

std::vector<imbrex::bindings::tensor> described_rows(row_layout layout,
                                                     std::initializer_list<std::pair<const char*, Tensor*>> tensors) {
    c10::SmallVector<Tensor, 4> all;
    for (const auto& [name, tensor] : tensors) {
        if (!collapses(*tensor, layout)) *tensor = tensor->contiguous();
        all.push_back(*tensor);
    }
    dimension_groups groups = groups_of(all, layout);
    if (groups.size() > allowed_groups(layout)) {  // each one collapses, but not together
        all.clear();
        for (const auto& [name, tensor] : tensors) {
            *tensor = tensor->contiguous();
            all.push_back(*tensor);
        }
        groups = groups_of(all, layout);
    }
    std::vector<imbrex::bindings::tensor> made;
    for (const auto& [name, tensor] : tensors) {
        made.push_back(described_rows(*tensor, name, layout, groups, made.size()));
    }
    return made;
}

void overwritten::finish() {
    if (!rows_.is_same(given_)) given_.copy_(rows_);
    if (!given_.is_inference()) torch::autograd::impl::bump_version(given_);
}

}  // namespace imbrex_torch
