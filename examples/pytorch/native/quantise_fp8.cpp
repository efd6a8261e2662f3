// imbrex::quantize_fp8: e4m3 Q, K and V with their scales, for attention_fp8.
#include "operator.hpp"
#include "rope_style.hpp"

#include "../../bindings/calls/quantise_fp8.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

namespace imbrex_torch {

namespace {

using optional_tensor = std::optional<Tensor>;

void require_type(const optional_tensor& t, const char* name, at::ScalarType type) {
    TORCH_CHECK_TYPE(!t || t->scalar_type() == type, name, ".dtype: ", t->scalar_type(), "; must be ", type);
}

// A copy if TMA cannot read it.
Tensor for_tma(const Tensor& x) {
    bool can_copy = x.stride(-1) == 1 && reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 16 == 0;
    for (std::int64_t i = 0; i < x.dim() - 1; ++i) can_copy = can_copy && (x.size(i) <= 1 || x.stride(i) % 8 == 0);
    return can_copy ? x : x.clone(at::MemoryFormat::Contiguous);
}

// One number, [sequences, heads] or [sequences, heads, blocks]. Ones where the kernel writes none: those of blocks without
// rows.
Tensor new_scales(const Tensor& x, std::int64_t sequences, bool per_head, std::int64_t block_rows, bool may_be_empty) {
    std::vector<std::int64_t> sizes;
    if (per_head || block_rows > 0) sizes = {sequences, x.size(-2)};
    if (block_rows > 0) sizes.push_back((x.size(-3) + block_rows - 1) / block_rows);
    const auto options = x.options().dtype(at::kFloat);
    return may_be_empty || x.numel() == 0 ? at::ones(sizes, options) : at::empty(sizes, options);
}

std::tuple<Tensor, Tensor> quantize_fp8(const Tensor& x_given, const optional_tensor& scale, bool per_head,
                                        std::int64_t block_rows, const optional_tensor& seqused,
                                        const optional_tensor& cu_seqlens, const optional_tensor& inv_freq,
                                        const std::string& style, double attention_factor,
                                        const optional_tensor& positions, std::optional<std::int64_t> hadamard_seed) {
    TORCH_CHECK_TYPE(x_given.scalar_type() == at::kBFloat16 || x_given.scalar_type() == at::kHalf,
                     "x.dtype: ", x_given.scalar_type(), "; must be BFloat16 or Half");
    TORCH_CHECK_VALUE(x_given.dim() == (cu_seqlens ? 3 : 4), "x: shape ", x_given.sizes(), "; ",
                      cu_seqlens ? "[tokens, heads, head_dim]" : "[batch, sequence, heads, head_dim]", " is needed");
    TORCH_CHECK_VALUE(block_rows >= 0 && block_rows <= std::numeric_limits<int>::max() && block_rows % 64 == 0,
                      "granularity: ", block_rows, "; blocks of rows are a multiple of 64");
    require_same_device(x_given, {{"scale", scale},
                                  {"seqused", seqused},
                                  {"cu_seqlens", cu_seqlens},
                                  {"inv_freq", inv_freq},
                                  {"positions", positions}});
    require_type(scale, "scale", at::kFloat);
    require_type(seqused, "seqused", at::kInt);
    require_type(cu_seqlens, "cu_seqlens", at::kInt);
    require_type(inv_freq, "inv_freq", at::kLong);
    require_type(positions, "positions", at::kInt);
    const Tensor x = for_tma(x_given), out = at::empty(x.sizes(), x.options().dtype(at::kFloat8_e4m3fn));
    const std::int64_t sequences = cu_seqlens ? cu_seqlens->numel() - 1 : x.size(0);
    const Tensor scales = scale ? scale->clone(at::MemoryFormat::Contiguous)
                                : new_scales(x, sequences, per_head, block_rows, seqused || cu_seqlens);
    imbrex::bindings::quantise_fp8_call call;
    call.x = described(x, "x");
    call.out = described(out, "out");
    call.scales = described(scales, "scale");
    call.block_rows = static_cast<int>(block_rows);
    call.scales_given = scale.has_value();
    call.seqused = described(seqused, "seqused");
    call.cu_seqlens = described(cu_seqlens, "cu_seqlens");
    call.inv_freq = described(inv_freq, "inv_freq");
    call.style = rope_style_of(style);
    call.attention_factor = static_cast<float>(attention_factor);
    const Tensor own_positions = positions ? positions->contiguous() : Tensor();
    call.positions = described(own_positions, "positions");
    if (hadamard_seed) call.hadamard_seed = static_cast<std::uint64_t>(*hadamard_seed);
    execution_on(x).run(quantise_fp8_variant(call), call);
    return {out, scales};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def(
        "quantize_fp8(Tensor x, Tensor? scale, bool per_head, int block_rows, Tensor? seqused, Tensor? cu_seqlens, "
        "Tensor? inv_freq, str style, float attention_factor, Tensor? positions, int? hadamard_seed) "
        "-> (Tensor out, Tensor scale)");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("quantize_fp8", quantize_fp8);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("quantize_fp8", quantize_fp8);
}

}  // namespace imbrex_torch
