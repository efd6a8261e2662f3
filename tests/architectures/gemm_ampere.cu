// architectures: 80 89 100a 120a
// The sm_80 GEMM kernel, for every GPU from sm_80 on: 16-bit floats and int8, with an epilogue and with a gate.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm/ampere.hpp>

using namespace imbrex;

using plain_gemm = gemm_ampere<bf16, bf16, epilogue::identity>;
using gated_gemm = gemm_ampere<fp16, fp16, epilogue::swiglu, matrix_layout::row_major, matrix_layout::column_major>;
using integer_gemm =
    gemm_ampere<std::int8_t, bf16, epilogue::scale, matrix_layout::row_major, matrix_layout::column_major>;
using turned_integer_gemm =
    gemm_ampere<std::int8_t, std::int32_t, epilogue::identity, matrix_layout::row_major, matrix_layout::row_major>;

void launch_gemms(const plain_gemm::arguments& plain, const gated_gemm::arguments& gated,
                  const integer_gemm::arguments& integer, const turned_integer_gemm::arguments& turned) {
    device::launch<plain_gemm>({1}, plain);
    device::launch<gated_gemm>({1}, gated);
    device::launch<integer_gemm>({1}, integer);
    device::launch<turned_integer_gemm>({1}, turned);
}
