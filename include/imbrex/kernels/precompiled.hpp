// Precompiled kernels: attention, GEMM and paged decode in bf16, as plain functions of the library imbrex::kernels (CMake option
// IMBREX_PRECOMPILED). For programs that do not want to compile templates: a .cpp that includes this header needs no nvcc.
//
//     imbrex::precompiled::attention(problem, imbrex::precompiled::mask_kind::causal, stream);
//
// They run on the current CUDA device. Problems are those of the templates, and so are the errors: invalid arguments throw
// imbrex::invalid_argument before launch. `stream` is a cudaStream_t.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/gemm/problem.hpp>

#include <cstddef>

namespace imbrex::precompiled {

enum class mask_kind { full, causal };

// head_dim up to 128, contiguous K and V: attention_forward.
void attention(const attention_problem<bf16>& p, mask_kind mask, void* stream = nullptr);

// D = A B with a row-major A and a column-major B (both K-major): gemm.
void gemm(const gemm_problem<bf16, bf16>& p, void* stream = nullptr);

// Causal decode from a paged KV cache, head_dim up to 128: paged_decode. The workspace is zeroed once before the first launch.
std::size_t paged_decode_workspace_bytes(const attention_problem<bf16>& p);
void paged_decode(const attention_problem<bf16>& p, void* workspace, void* stream = nullptr);

}  // namespace imbrex::precompiled
