// imbrex::linear_quantized, imbrex::dequantize_weights and imbrex::pack_weights: linear layers with quantised weights.
#include "operator.hpp"

#include "../../bindings/calls/quantised_weights.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace imbrex_torch {

namespace {

using imbrex::bindings::weight_format;
using optional_tensor = std::optional<Tensor>;

element element_of(at::ScalarType type) {
    TORCH_CHECK_TYPE(type == at::kBFloat16 || type == at::kHalf, "dtype: ", type, "; must be BFloat16 or Half");
    return type == at::kHalf ? element::fp16 : element::bf16;
}

int size_of(std::int64_t size, const char* name) {
    TORCH_CHECK_VALUE(size >= 1 && size <= std::numeric_limits<int>::max(), name, ": ", size, "; must be from 1 to ",
                      std::numeric_limits<int>::max());
    return static_cast<int>(size);
}

std::string variant_of(const char* binding, const weight_format& format) {
    try {
        return std::string(binding) + ", " + format.type();
    } catch (const imbrex::invalid_argument& wrong) {
        TORCH_CHECK_VALUE(false, wrong.what());
    }
}

// Rows that begin and end at multiples of 16 bytes.
Tensor aligned_rows(const Tensor& x) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 16 == 0;
    const bool strided = x.stride(1) != 1 || (x.size(0) > 1 && (x.stride(0) % 8 != 0 || x.stride(0) < x.size(1)));
    return aligned && !strided ? x : x.clone(at::MemoryFormat::Contiguous);
}

Tensor linear(const Tensor& x, const Tensor& packed, const optional_tensor& bias, std::int64_t out_features,
              std::string_view format, std::int64_t group_size, at::ScalarType dtype) {
    TORCH_CHECK_TYPE(x.scalar_type() == dtype, "x.dtype: ", x.scalar_type(), "; the weights were packed for ", dtype);
    TORCH_CHECK_TYPE(!bias || bias->scalar_type() == dtype, "bias.dtype: ", bias->scalar_type(), "; must be ", dtype,
                     ", that of x");
    TORCH_CHECK_TYPE(packed.scalar_type() == at::kByte, "packed.dtype: ", packed.scalar_type(), "; must be Byte");
    TORCH_CHECK_VALUE(x.dim() >= 1, "x: a number; [..., in_features] is needed");
    require_same_device(x, {{"packed", packed}, {"bias", bias}});
    imbrex::bindings::linear_quantised_call call;
    call.rows = size_of(out_features, "out_features");
    call.k = size_of(x.size(-1), "x.shape[-1]");
    const std::string variant =
        variant_of("linear_quantised", {std::string(format), static_cast<int>(group_size), element_of(dtype)});
    auto sizes = x.sizes().vec();
    sizes.back() = out_features;
    const Tensor out = at::empty(sizes, x.options());
    if (out.numel() == 0) return out;
    const Tensor rows = aligned_rows(x.reshape({-1, x.size(-1)}));
    size_of(rows.size(0), "x.shape[:-1]");
    call.packed = described(packed, "packed");
    call.x = described(rows, "x");
    call.bias = described(bias, "bias");
    call.out = described(out, "out");
    execution_on(x).run(variant, call);
    return out;
}

// The weights, without the scales of rows.
Tensor dequantize(const Tensor& packed, std::int64_t out_features, std::int64_t in_features, std::string_view format,
                  std::int64_t group_size, at::ScalarType dtype) {
    TORCH_CHECK_TYPE(packed.scalar_type() == at::kByte, "packed.dtype: ", packed.scalar_type(), "; must be Byte");
    const Tensor values = at::empty({out_features, in_features}, packed.options().dtype(dtype));
    imbrex::bindings::linear_quantised_call call;
    call.rows = size_of(out_features, "out_features");
    call.k = size_of(in_features, "in_features");
    call.packed = described(packed, "packed");
    call.dequantised = described(values, "dequantised");
    execution_on(packed).run(
        variant_of("linear_quantised", {std::string(format), static_cast<int>(group_size), element_of(dtype)}), call);
    return values;
}

Tensor pack(const Tensor& values, const Tensor& scales, std::int64_t in_features, std::string_view format,
            std::int64_t group_size, at::ScalarType dtype) {
    TORCH_CHECK_VALUE(values.dim() == 2, "values: shape ", values.sizes(), "; [out_features, in_features] is needed");
    require_same_device(values, {{"scales", scales}});
    const Tensor own_values = values.cpu().contiguous(), own_scales = scales.cpu().contiguous();
    const std::string variant =
        variant_of("pack_weights", {std::string(format), static_cast<int>(group_size), element_of(dtype)});
    imbrex::bindings::pack_weights_call call;
    call.rows = size_of(values.size(0), "values.shape[0]");
    call.k = size_of(in_features, "in_features");
    std::size_t bytes = 0;
    call.packed_bytes = &bytes;
    execution_on(own_values).run(variant, call);
    const Tensor packed = at::empty({static_cast<std::int64_t>(bytes)}, own_values.options().dtype(at::kByte));
    call.packed_bytes = nullptr;
    call.values = described(own_values, "values");
    call.scales = described(own_scales, "scales");
    call.packed = described(packed, "packed");
    execution_on(own_values).run(variant, call);
    return packed.to(values.device());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def(
        "linear_quantized(Tensor x, Tensor packed, Tensor? bias, SymInt out_features, str format, int group_size, "
        "ScalarType dtype) -> Tensor");
    m.def(
        "dequantize_weights(Tensor packed, SymInt out_features, SymInt in_features, str format, int group_size, "
        "ScalarType dtype) -> Tensor");
    m.def(
        "pack_weights(Tensor values, Tensor scales, int in_features, str format, int group_size, ScalarType dtype) "
        "-> Tensor");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("linear_quantized", linear);
    m.impl("dequantize_weights", dequantize);
    m.impl("pack_weights", pack);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("linear_quantized", linear);
    m.impl("dequantize_weights", dequantize);
    m.impl("pack_weights", pack);
}

}  // namespace imbrex_torch
