// The products of cuda_expert_formats.hpp, by the routing: a GEMV for tiles of few rows, else a grouped GEMM. They take most of
// the compile time, so cuda_experts_*.cu instantiate one format each and compile in parallel.
#pragma once

#include <imbrex/kernels/gemm/unquantised_weights.hpp>
#include <imbrex/kernels/moe_gemm.hpp>
#include <imbrex/kernels/moe_gemm_quantised.hpp>
#include <imbrex/kernels/moe_gemv.hpp>

#include "engine/model/cuda_expert_formats.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

inline moe_gemm_problem<bf16, bf16> expert_problem(const expert_operands& p, int n, int k) {
    return {.n = n, .k = k, .routing = p.routing, .a = {p.a, p.a_stride}, .out = {p.out}};
}
inline bool takes_gemv(const moe_routing& routing) {
    return routing.sizes.tile_rows <= most_gemv_tile_rows;
}

template <class Weights, moe_rows Rows, class Epilogue>
void multiply_packed_experts(world where, const moe_gemm_problem<bf16, bf16>& p,
                             const typename Weights::weight_tile* tiles, const Epilogue& epilogue, void* stream) {
    if (takes_gemv(p.routing)) {
        moe_gemv<Weights, bf16, Rows, Epilogue>::launch(where, p, tiles, epilogue, stream);
    } else {
        moe_gemm_quantised<Weights, bf16, Rows, Epilogue>::launch(where, p, tiles, epilogue, stream);
    }
}

template <class Weights>
void cuda_packed_experts<Weights>::gate_up(world where, const expert_operands& p, const expert_glu& function,
                                           void* stream) const {
    multiply_packed_experts<Weights, moe_rows::gathered>(where, expert_problem(p, rows_, columns_), tiles_.data(),
                                                         function, stream);
}
template <class Weights>
void cuda_packed_experts<Weights>::down(world where, const expert_operands& p, const expert_bias& bias,
                                        void* stream) const {
    multiply_packed_experts<Weights, moe_rows::sorted>(where, expert_problem(p, rows_, columns_), tiles_.data(), bias,
                                                       stream);
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
