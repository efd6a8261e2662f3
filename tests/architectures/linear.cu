// architectures: 80 89 100a 120a
// linear (GEMV) on every GPU from sm_80 on.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/linear.hpp>

using namespace imbrex;

template <class Product>
void launch_both() {
    using row = typename Product::device_row;
    using rows = typename Product::device_rows;
    device::launch<row>({1}, typename row::arguments{});
    device::launch<rows>({1}, typename rows::arguments{});
}

void launch_all() {
    launch_both<linear<float, unquantised_weight_rows<float>, float>>();
    launch_both<linear<bf16, unquantised_weight_rows<bf16>, float>>();
    launch_both<linear<fp16, e4m3_weight_rows, fp16>>();
    launch_both<linear<bf16, int8_weight_rows<>, bf16>>();
    launch_both<linear<float, int8_weight_rows<activation_quantisation::int8>, float>>();
    launch_both<linear<float, int4_weight_rows<>, float>>();
    launch_both<linear<bf16, int4_weight_rows<activation_quantisation::int8, float>, bf16>>();
}
