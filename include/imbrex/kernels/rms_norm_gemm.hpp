// Fused RMSNorm + GEMM in one launch, for the small batches of decode, where every launch counts:
//
//     D = epilogue(x / sqrt(mean(x^2) + epsilon) W^T)           mean over each row of x
//
//     using product = rms_norm_gemm<bf16, bf16, epilogue::bias<float>>;
//     if (product::can_implement(where, p)) product::launch(where, p, {{bias, n}}, {.epsilon = 1e-5f}, stream);
//
// p.a is x. p.b is W [n, k] with the norm's weights already multiplied into its columns, which a loader does once. It
// takes up to 8 rows and less than 24 MB of weights, on Hopper; otherwise rms_norm (kernels/rms_norm.hpp) followed by
// gemm is faster. The GEMV (gemm/gemv.hpp) multiplies unnormalised rows and divides the products, so nothing is rounded
// in between. No launch allocates memory or synchronizes.
//
// Trap (PDL): weights are read before the previous kernels in the stream have finished, so no kernel in the stream may
// write them. The next kernel may start that early too; the same rule holds for anything it reads before its own
// pdl_wait.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/gemv_16bit.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>

#include <cmath>
#include <optional>

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
        [[maybe_unused]] const views validated(p);
        return gemv::can_implement(p) && gemv::can_run(where);
    }

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, const Epilogue& epilogue, const rms_norm_input& input,
                       void* stream = nullptr) {
        require(std::isfinite(input.epsilon) && input.epsilon >= 0, "epsilon: ", input.epsilon,
                "; must be finite and not negative");
        require(can_implement(where, p), "m, n, k: ", p.m, ", ", p.n, ", ", p.k,
                "; must have 1 to 8 rows, rows of x and weights that start at 16-byte boundaries, less than 24 MB of "
                "weights, a multiple of 64 columns with a GLU epilogue, and a Hopper GPU");
        if (p.m == 0 || p.n == 0) return;
        gemv::launch(where, p, epilogue, input, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
