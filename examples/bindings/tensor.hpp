// Tensors of callers that know types and shapes at run time only (PyTorch, JAX, C), and the views of the library made from
// them. A tensor does not own its memory.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

namespace imbrex::bindings {

enum class element { none, bf16, fp16, fp32, e4m3, int8, uint8, int32, int64 };

inline const char* name_of(element type) {
    const char* const names[] = {"none", "bf16", "fp16", "float", "e4m3", "int8", "uint8", "int32", "int64"};
    return names[static_cast<int>(type)];
}

template <class T>
constexpr element element_of() {
    using plain = std::remove_const_t<T>;
    if constexpr (std::is_same_v<plain, bf16>) return element::bf16;
    if constexpr (std::is_same_v<plain, fp16>) return element::fp16;
    if constexpr (std::is_same_v<plain, float>) return element::fp32;
    if constexpr (std::is_same_v<plain, e4m3>) return element::e4m3;
    if constexpr (std::is_same_v<plain, std::int8_t>) return element::int8;
    if constexpr (std::is_same_v<plain, std::uint8_t>) return element::uint8;
    if constexpr (std::is_same_v<plain, std::int32_t>) return element::int32;
    if constexpr (std::is_same_v<plain, std::int64_t>) return element::int64;
    return element::none;
}

struct tensor {
    static constexpr int max_rank = 5;

    void* data = nullptr;
    element type = element::none;  // none: not given
    int rank = 0;
    std::int64_t sizes[max_rank] = {};
    std::int64_t strides[max_rank] = {};  // in elements

    bool given() const { return type != element::none; }
    std::int64_t count() const {
        std::int64_t all = 1;
        for (int i = 0; i < rank; ++i) all *= sizes[i];
        return all;
    }
    bool is_contiguous() const {
        std::int64_t expected = 1;
        for (int i = rank - 1; i >= 0; --i) {
            if (sizes[i] != 1 && strides[i] != expected) return count() == 0;
            expected *= sizes[i];
        }
        return true;
    }
};

namespace detail {

inline std::string shape_of(const tensor& t) {
    std::string all = "[";
    for (int i = 0; i < t.rank; ++i) all += (i == 0 ? "" : ", ") + std::to_string(t.sizes[i]);
    return all + "]";
}

template <class T>
T* data_of(const tensor& t, const char* name) {
    require(t.type == element_of<T>(), name, ".dtype: ", name_of(t.type), "; must be ", name_of(element_of<T>()));
    return static_cast<T*>(t.data);
}

inline void require_last_stride(const tensor& t, const char* name) {
    const int last = t.rank - 1;
    require(t.sizes[last] <= 1 || t.strides[last] == 1 || t.count() == 0, name, ".strides[", last,
            "]: ", t.strides[last], "; the last dimension must be contiguous");
}

}  // namespace detail

// The elements of a contiguous tensor, or null if it is not given. `count` < 0: any number.
template <class T>
T* elements_of(const tensor& t, const char* name, std::int64_t count = -1) {
    if (!t.given()) return nullptr;
    T* const data = detail::data_of<T>(t, name);
    require(t.is_contiguous(), name, ": shape ", detail::shape_of(t), " is strided; it must be contiguous");
    require(count < 0 || t.count() == count, name, ": shape ", detail::shape_of(t), "; ", count,
            " elements are needed");
    return data;
}

// [batch, row, head, head_dim], or [row, head, head_dim] for one sequence or a varlen batch.
template <class T>
attention_view<T> attention_view_of(const tensor& t, const char* name) {
    T* const data = detail::data_of<T>(t, name);
    require(t.rank == 3 || t.rank == 4, name, ": shape ", detail::shape_of(t),
            "; [batch, sequence, heads, head_dim] or [tokens, heads, head_dim] is needed");
    detail::require_last_stride(t, name);
    const int from = t.rank - 3;
    const std::int64_t batches = from == 0 ? 1 : t.sizes[0], batch_stride = from == 0 ? 0 : t.strides[0];
    return {data,
            {batches, t.sizes[from + 1], t.sizes[from], t.sizes[from + 2]},
            {batch_stride, t.strides[from + 1], t.strides[from]}};
}

// Contiguous fp32 [batch, head, row] or [head, row].
inline attention_row_view attention_rows_of(const tensor& t, const char* name) {
    if (!t.given()) return {};
    float* const data = elements_of<float>(t, name);
    return batch_head_rows(data, t.sizes[t.rank - 2], t.sizes[t.rank - 1]);
}

// Rows [.., columns] whose leading dimensions collapse to one or two strides: a matrix, or heads of tokens.
template <class T>
row_view<T> rows_of(const tensor& t, const char* name) {
    T* const data = detail::data_of<T>(t, name);
    require(t.rank >= 1 && t.rank <= 3, name, ": shape ", detail::shape_of(t), "; one to three dimensions are allowed");
    detail::require_last_stride(t, name);
    if (t.rank == 1) return {data, {1, 1, t.sizes[0]}, {t.sizes[0], t.sizes[0]}};
    if (t.rank == 2) return {data, {t.sizes[0], 1, t.sizes[1]}, {t.strides[0], t.sizes[1]}};
    return {data, {t.sizes[0], t.sizes[1], t.sizes[2]}, {t.strides[0], t.strides[1]}};
}

}  // namespace imbrex::bindings
