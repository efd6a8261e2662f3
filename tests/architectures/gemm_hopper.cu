// architectures: 90a
// GEMM on Hopper through its launchers: bf16 with an epilogue, e4m3, and 4-bit weights.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>

using namespace imbrex;

void launch_products() {
    using dense = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major, .prefetch = pdl_prefetch::weights}>;
    dense::launch(world::device, dense::problem{});
    using gated_product = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major}, epilogue::swiglu>;
    gated_product::launch(world::device, gated_product::problem{});
    using float8 = gemm<e4m3, bf16, gemm_options{.b = matrix_layout::column_major}>;
    float8::launch(world::device, float8::problem{});
    using four_bits = gemm_quantised<int4_weights<bf16, 128, bf16, 512>, bf16>;
    four_bits::launch(world::device, four_bits::problem{}, nullptr);
}
