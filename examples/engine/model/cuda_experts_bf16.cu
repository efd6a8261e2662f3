// Products of experts in bf16.
#include "engine/model/cuda_expert_products.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

namespace {

// Shared memory holds gate and up of four warps.
using gemv_weights = unquantised_weights<bf16, 32>;
constexpr int gemv_warps = 4;

template <moe_rows Rows, class Epilogue>
void multiply(world where, const expert_operands& of, int n, int k, const bf16* values, const Epilogue& epilogue,
              void* stream) {
    moe_gemm_problem<bf16, bf16> p = expert_problem(of, n, k);
    if (takes_gemv(p.routing)) {
        const gemm_operand<const bf16> weights{values};
        moe_gemv<gemv_weights, bf16, Rows, Epilogue, gemv_warps>::launch(where, p, weights, epilogue, stream);
    } else {
        p.b = {values};
        moe_gemm<bf16, bf16, Rows, Epilogue>::launch(where, p, epilogue, stream);
    }
}

}  // namespace

void cuda_bf16_experts::gate_up(world where, const expert_operands& p, const expert_glu& function, void* stream) const {
    multiply<moe_rows::gathered>(where, p, rows_, columns_, values_.data(), function, stream);
}
void cuda_bf16_experts::down(world where, const expert_operands& p, const expert_bias& bias, void* stream) const {
    multiply<moe_rows::sorted>(where, p, rows_, columns_, values_.data(), bias, stream);
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
