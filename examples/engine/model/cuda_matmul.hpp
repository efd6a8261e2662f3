// The GEMMs of cuda_matrix_formats.hpp and cuda_block_matrix.hpp. Their kernels take most of the compile time, so cuda_matmul_*.cu instantiate
// one format each and compile in parallel. Files that only call `matmul` include cuda_matrix.hpp.
#pragma once

#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm/dequantise_weights.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>

#include <cstddef>
#include <type_traits>

#include "engine/model/cuda_block_matrix.hpp"
#include "engine/model/cuda_matrix_formats.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class Out, class Epilogue>
void cuda_bf16_matrix::matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                              const gemm_workspace&, void* stream) const {
    using product =
        gemm<bf16, Out, gemm_options{.b = matrix_layout::column_major, .prefetch = pdl_prefetch::weights}, Epilogue>;
    gemm_problem<bf16, Out> with_values = p;
    with_values.b = {values()};
    product::launch(where, with_values, epilogue, stream);
}

// Without a workspace, weights are not rounded and the GEMM takes 32 rows of x at a time. The GEMM with dequantised weights
// does not depend on the format and is compiled once (cuda_matmul_dequantised.cu).
template <class Weights, class Out, class Epilogue>
void matmul_packed(world where, const gemm_problem<bf16, Out>& p, const typename Weights::weight_tile* weights,
                   const Epilogue& epilogue, const gemm_workspace& workspace, void* stream) {
    using product = gemm_quantised<Weights, Out, Epilogue>;
    if (workspace.pointer != nullptr && product::fuses(p.m)) {
        return product::launch_fused(where, p, weights, epilogue, stream);
    }
    const std::size_t needed = product::workspace_bytes(p);
    if (needed == 0 || needed > workspace.bytes) return product::launch(where, p, weights, epilogue, stream);
    auto* const dequantised = static_cast<bf16*>(workspace.pointer);
    const int rows = p.n * (epilogue::is_glu<Epilogue> ? 2 : 1);
    dequantise_weights<Weights>::launch(where, rows, p.k, weights, dequantised, stream);
    gemm_problem<bf16, Out> with_values = p;
    with_values.b = {dequantised};
    matmul_dequantised(where, with_values, epilogue, stream);
}

template <class Format>
template <class Out, class Epilogue>
void cuda_grouped_matrix<Format>::matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                                         const gemm_workspace& workspace, void* stream) const {
    matmul_packed<weights>(where, p, tiles_.data(), epilogue, workspace, stream);
}

template <class Weights>
template <class Out, class Epilogue>
void cuda_block_matrix<Weights>::matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                                        const gemm_workspace& workspace, void* stream) const {
    matmul_packed<Weights>(where, p, tiles_.data(), epilogue, workspace, stream);
}

template <class Out, class Epilogue>
void cuda_e4m3_matrix::matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                              const gemm_workspace& workspace, void* stream) const {
    const auto used = after_scaling(epilogue, p.n);
    using product = gemm_quantised<weights, Out, std::remove_const_t<decltype(used)>>;
    if (workspace.pointer != nullptr && product::workspace_bytes(p) <= workspace.bytes) {
        product::launch(where, p, tiles_.data(), workspace, used, stream);
    } else {
        product::launch(where, p, tiles_.data(), used, stream);
    }
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
