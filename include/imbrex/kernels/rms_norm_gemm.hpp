// A norm of rows and a product with weights in one launch, for the few rows of a decode, where each launch counts:
//
//     D = epilogue(x / sqrt(mean(x^2) + epsilon) W^T)           mean of each row of x
//
//     using product = rms_norm_gemm<bf16, bf16, epilogue::bias<float>>;
//     if (product::can_implement(where, p)) product::launch(where, p, {{bias, n}}, {.epsilon = 1e-5f}, stream);
//
// p.a are the rows, p.b the weights [n, k], into which the weights of the norm have been multiplied, column by column, when they were
// loaded. Up to 8 rows and less than 24 MB of weights on Hopper; others are quicker with rms_norm (kernels/rms_norm.hpp) and gemm. The rows are
// multiplied as they are and the products divided, so that nothing is rounded between. Weights are read before the kernels before in the
// stream have ended: no kernel of it must write them. The next kernel may begin before those have ended as well: the same holds for what it
// reads early itself. Nothing is allocated and nothing waited for.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/gemv_16bit.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>

#include <cmath>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue = epilogue::identity>
class rms_norm_gemm {
    using gemv = gemv_16bit<In, Out, Epilogue, rms_norm_input>;
    using views =
        gemm_views<In, Out, matrix_layout::row_major, matrix_layout::column_major, epilogue::is_glu<Epilogue>>;

  public:
    using problem = gemm_problem<In, Out>;

    static bool can_implement(world where, const problem& p) {
        [[maybe_unused]] const views refused_here_if_wrong(p);
        return gemv::can_implement(p) && gemv::can_run(where);
    }

    static void launch(world where, const problem& p, const Epilogue& epilogue, const rms_norm_input& input,
                       void* stream = nullptr) {
        require(std::isfinite(input.epsilon) && input.epsilon >= 0, "epsilon: ", input.epsilon,
                "; it is finite and not negative");
        require(
            can_implement(where, p), "m, n, k: ", p.m, ", ", p.n, ", ", p.k,
            "; a normed product has 1 to 8 rows, rows of x and of weights that begin at multiples of 16 bytes, less "
            "than 24 MB of weights, a multiple of 64 columns if it is gated, and a Hopper to run on");
        if (p.m == 0 || p.n == 0) return;
        gemv::launch(where, p, epilogue, input, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
