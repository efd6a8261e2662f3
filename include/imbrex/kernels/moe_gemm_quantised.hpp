// Grouped GEMM over experts with quantised weights, for many rows: moe_gemm.hpp with MXFP4, int4, int8 or e4m3 weights,
// which the consumers dequantise to bf16 or fp16 in registers (moe_gemm/dequantising.hpp).
//
//     using weights = mxfp4_weights<bf16>;                                  // gemm/quantised_weights.hpp
//     moe_gemm_quantised<weights, bf16, moe_rows::gathered, glu>::launch(
//         world::device, {.n = ffn, .k = hidden, .routing = routing, .a = {x}, .out = {h}}, packed, epilogue, stream);
//
// `packed` has the matrices of all experts below one another: pack [experts * n, k], or [experts * 2 n, k] with a GLU
// epilogue, as one matrix (gemm/pack_weights.hpp). n is a multiple of 64. Grouped weights are multiplied by their scales
// and rounded to the type of A; MXFP4 is exact in bf16. Weights with one scale per row need an epilogue that applies it.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/extension_points.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/kernels/moe_gemm.hpp>
#include <imbrex/kernels/moe_gemm/dequantising.hpp>
#include <imbrex/kernels/moe_gemm/problem.hpp>

#include <optional>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class Weights, class Out, moe_rows Rows, class Epilogue = epilogue::identity>
class moe_gemm_quantised {
    static_assert(detail::check_gemm_epilogue<Epilogue>());

  public:
    using element = typename Weights::element;
    using problem = moe_gemm_problem<element, Out>;  // its b is ignored
    template <int BlockM>
    using kernel = moe_gemm_dequantising<Weights, Out, Rows, Epilogue, BlockM>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const typename Weights::weight_tile* weights,
                                       const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, weights, more...); }, options);
    }

    static void launch(world where, const problem& p, const typename Weights::weight_tile* weights,
                       const Epilogue& epilogue = {}, void* stream = nullptr) {
        [[maybe_unused]] const typename kernel<128>::views refused_here_if_wrong(p);
        if (p.routing.sizes.tokens == 0 || p.n == 0) return;
        if (p.routing.sizes.tile_rows == 64) {
            launch_moe_tiles<kernel<64>>(where, p.routing.sizes, kernel<64>::describe(p, epilogue, weights), stream);
        } else {
            launch_moe_tiles<kernel<128>>(where, p.routing.sizes, kernel<128>::describe(p, epilogue, weights), stream);
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
