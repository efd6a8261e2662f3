// architectures: 90a
// The mixture-of-experts kernels: norm and router, both sources of rows, bf16, e4m3 and packed weights, tiles of 8, 64 and 128 rows.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/moe_combine.hpp>
#include <imbrex/kernels/moe_gemm.hpp>
#include <imbrex/kernels/moe_gemm_quantised.hpp>
#include <imbrex/kernels/moe_gemv.hpp>
#include <imbrex/kernels/moe_norm_router.hpp>
#include <imbrex/kernels/moe_router.hpp>

using namespace imbrex;

template <class Kernel>
void launch_moe() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

using clamped = epilogue::biased_glu<bf16, activation::clamped_swiglu>;
using biased = epilogue::bias<bf16>;
using mxfp4 = mxfp4_weights<bf16>;
constexpr moe_rows gathered = moe_rows::gathered, sorted = moe_rows::sorted;

void launch_moe_kernels() {
    launch_moe<moe_router<float>::kernel<256, row_alignment::aligned>>();
    launch_moe<moe_router<bf16, moe_scoring::sigmoid_with_bias>::kernel<512, row_alignment::aligned>>();
    launch_moe<moe_norm_router<bf16>::kernel<6>>();
    launch_moe<sort_choices_kernel>();
    launch_moe<moe_combine<bf16>::kernel<256, row_alignment::aligned, 1>>();
    launch_moe<moe_gemm<bf16, bf16, gathered, clamped>::kernel<128>>();
    launch_moe<moe_gemm<bf16, bf16, sorted, biased>::kernel<64>>();
    launch_moe<moe_gemm<e4m3, bf16, gathered, epilogue::identity, promoted_with_gathered_block_scales>::kernel<128>>();
    launch_moe<moe_gemm_quantised<mxfp4, bf16, gathered, clamped>::kernel<128>>();
    launch_moe<moe_gemm_quantised<int8_weights<bf16>, bf16, sorted, epilogue::scale_columns>::kernel<64>>();
    launch_moe<moe_gemv<mxfp4, bf16, gathered, clamped>::kernel<8>>();
    launch_moe<moe_gemv<mxfp4, bf16, sorted, biased>::kernel<16>>();
}
