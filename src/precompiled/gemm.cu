#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/precompiled.hpp>

namespace imbrex::precompiled {

void gemm(const gemm_problem<bf16, bf16>& p, void* stream) {
    using product = imbrex::gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major}>;
    product::launch(world::device, p, {}, stream);
}

}  // namespace imbrex::precompiled
