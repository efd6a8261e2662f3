// GEMMs with weights that were dequantised into a workspace, for all packed formats but e4m3, whose scales come after.
#include "engine/model/cuda_matmul.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class Out, class Epilogue>
void matmul_dequantised(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue, void* stream) {
    gemm<bf16, Out, gemm_options{.b = matrix_layout::column_major}, Epilogue>::launch(where, p, epilogue, stream);
}

template void matmul_dequantised(world, const gemm_problem<bf16, float>&, const bias_and_residual&, void*);
template void matmul_dequantised(world, const gemm_problem<bf16, bf16>&, const bias_and_residual&, void*);
template void matmul_dequantised(world, const gemm_problem<bf16, bf16>&, const epilogue::swiglu&, void*);
template void matmul_dequantised(world, const gemm_problem<bf16, bf16>&, const epilogue::glu<activation::gelu_tanh>&,
                                 void*);

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
