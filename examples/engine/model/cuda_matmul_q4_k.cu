// GEMMs with Q4_K weights: logits; bias and residual; gated MLP.
#include "engine/model/cuda_matmul.hpp"

namespace imbrex::engine {

template void cuda_q4_k_matrix::matmul(world, const gemm_problem<bf16, float>&, const bias_and_residual&,
                                       const gemm_workspace&, void*) const;
template void cuda_q4_k_matrix::matmul(world, const gemm_problem<bf16, bf16>&, const bias_and_residual&,
                                       const gemm_workspace&, void*) const;
template void cuda_q4_k_matrix::matmul(world, const gemm_problem<bf16, bf16>&, const epilogue::swiglu&,
                                       const gemm_workspace&, void*) const;
template void cuda_q4_k_matrix::matmul(world, const gemm_problem<bf16, bf16>&,
                                       const epilogue::glu<activation::gelu_tanh>&, const gemm_workspace&, void*) const;

}  // namespace imbrex::engine
