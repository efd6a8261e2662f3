// The host world's matrix products, compiled once and optimised (host_products.cpp): the quick scope compiles the tests with
// little optimisation, and these loops would take most of their time. Part of the precompiled header.
#pragma once

#include <imbrex/hw/host/host_gemm.hpp>

namespace imbrex::hw {

using host_products = host_gemm<native_simd>;

extern template void host_products::run<float, float, float>(float*, std::ptrdiff_t, operand_view<float>,
                                                             operand_view<float>, int, int, int, bool);
extern template void host_products::run<float, bf16, bf16>(float*, std::ptrdiff_t, operand_view<bf16>,
                                                           operand_view<bf16>, int, int, int, bool);
extern template void host_products::run<float, fp16, fp16>(float*, std::ptrdiff_t, operand_view<fp16>,
                                                           operand_view<fp16>, int, int, int, bool);
extern template void host_products::run<float, e4m3, e4m3>(float*, std::ptrdiff_t, operand_view<e4m3>,
                                                           operand_view<e4m3>, int, int, int, bool);
extern template void host_products::run<std::int32_t, std::int8_t, std::int8_t>(std::int32_t*, std::ptrdiff_t,
                                                                                operand_view<std::int8_t>,
                                                                                operand_view<std::int8_t>, int, int,
                                                                                int, bool);

}  // namespace imbrex::hw
