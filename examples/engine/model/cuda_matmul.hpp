// The GEMMs of cuda_matrix_formats.hpp. Their kernels take most of the compile time, so cuda_matmul_*.cu instantiate
// one format each and compile in parallel. Files that only call `matmul` include cuda_matrix.hpp.
#pragma once

#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>

#include <type_traits>

#include "engine/model/cuda_matrix_formats.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class Out, class Epilogue>
void cuda_bf16_matrix::matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                              const gemm_workspace&, void* stream) const {
    const auto used = as_matrix_epilogue(epilogue);
    using product = gemm<bf16, Out, gemm_options{.b = matrix_layout::column_major, .prefetch = pdl_prefetch::weights},
                         std::remove_const_t<decltype(used)>>;
    gemm_problem<bf16, Out> with_values = p;
    with_values.b = {values()};
    product::launch(where, with_values, used, stream);
}

// Without a workspace for dequantised weights, the GEMM takes 32 rows of x at a time.
template <class Weights, class Out, class Epilogue>
void matmul_packed(world where, const gemm_problem<bf16, Out>& p, const typename Weights::weight_tile* weights,
                   const Epilogue& epilogue, const gemm_workspace& workspace, void* stream) {
    using product = gemm_quantised<Weights, Out, Epilogue>;
    if (product::workspace_bytes(p) <= workspace.bytes) {
        product::launch(where, p, weights, workspace, epilogue, stream);
    } else {
        product::launch(where, p, weights, epilogue, stream);
    }
}

template <class Format>
template <class Out, class Epilogue>
void cuda_grouped_matrix<Format>::matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                                         const gemm_workspace& workspace, void* stream) const {
    matmul_packed<weights>(where, p, tiles_.data(), as_matrix_epilogue(epilogue), workspace, stream);
}

template <class Out, class Epilogue>
void cuda_e4m3_matrix::matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                              const gemm_workspace& workspace, void* stream) const {
    matmul_packed<weights>(where, p, tiles_.data(), after_scaling(as_matrix_epilogue(epilogue), p.n), workspace,
                           stream);
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
