// What comes before the experts of a layer for 1 to 16 tokens (decode), in one launch instead of three: RMSNorm, the
// product with the router's matrix, and the router (moe_router.hpp). One block does it all, since each of these steps is
// shorter than a launch; with more tokens separate launches are faster.
//
//     moe_norm_router<bf16>::launch(world::device, {.x = as_rows<const bf16>(hidden, tokens, 2880),
//                                                   .norm_weight = norm_weight,
//                                                   .epsilon = 1e-5f,
//                                                   .out = as_rows(normed, tokens, 2880),
//                                                   .router = {router},
//                                                   .bias = router_bias,
//                                                   .logits = logits,
//                                                   .routing = routing}, {}, stream);
//
// The product reads the normalised rows rounded to T, as a GEMM would, and sums in float. Rows have a multiple of 8
// columns, up to 4096, and start at multiples of 16 bytes; there are up to 256 experts. A launch allocates nothing and does
// not synchronise. Invalid arguments throw imbrex::error before launch.
//
// Trap (PDL): the first rows of the router are read before the previous kernels in the stream have finished, so none of
// them may write the router.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/moe_router/norm_and_choose.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/kernels/moe_router/scoring.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

template <class T>
struct moe_norm_router_problem {
    row_view<const T> x;                 // [tokens, columns]
    const float* norm_weight = nullptr;  // one per column
    float epsilon = 1e-6f;
    row_view<T> out;                    // [tokens, columns]: normalised, for the experts
    gemm_operand<const T> router = {};  // [experts, columns]
    const float* bias = nullptr;        // one per expert, optional
    float* logits = nullptr;            // [tokens, experts], written
    moe_routing routing;                // written
};

inline namespace IMBREX_WORLDS {

template <class T, class Scoring = moe_scoring::softmax_of_chosen>
class moe_norm_router {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16>,
                  "imbrex: the rows of moe_norm_router are bf16 or fp16");

  public:
    using problem = moe_norm_router_problem<T>;
    template <int Tiles>
    using kernel = norm_and_choose_kernel<T, Scoring, Tiles>;
    static constexpr int most_tokens = 16, most_columns = 4096, most_experts = kernel<4>::most_experts;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    // Whether the sizes are those of this kernel.
    static bool can_implement(int tokens, int columns, int experts) {
        return tokens <= most_tokens && columns <= most_columns && columns % 8 == 0 && experts <= most_experts;
    }

    // Of all kernels.
    static norm_and_choose_arguments<T, Scoring> arguments_of(const problem& p, const Scoring& scoring) {
        const int experts = p.routing.sizes.experts, columns = p.x.columns();
        return {.x = row_accessor_of(p.x),
                .out = row_accessor_of(p.out),
                .norm_weight = p.norm_weight,
                .router = row_accessor_of(as_rows(p.router.pointer, experts, columns, p.router.stride)),
                .bias = p.bias,
                .logits = p.logits,
                .columns = columns,
                .epsilon = p.epsilon,
                .routing = p.routing,
                .scoring = scoring};
    }

    static void launch(world where, const problem& p, const Scoring& scoring = {}, void* stream = nullptr) {
        const moe_sizes& sizes = p.routing.sizes;
        sizes.require_valid();
        p.routing.require_given();
        scoring.require_valid(sizes);
        detail::require_rows(p.x, "x");
        detail::require_rows(p.out, "out");
        detail::require_same_rows(p.out, "out", p.x, "x");
        detail::require_disjoint_rows(p.out, "out");
        const int columns = p.x.columns();
        const std::int64_t rows = p.x.extents[0] * p.x.extents[1];
        require(rows == sizes.tokens, "x: ", rows, " rows; routing.sizes.tokens is ", sizes.tokens);
        require(can_implement(sizes.tokens, columns, sizes.experts), "x: ", rows, " rows of ", columns, " columns and ",
                sizes.experts, " experts; there may be up to ", most_tokens, " rows, columns a multiple of 8 up to ",
                most_columns, ", and ", most_experts, " experts");
        require(std::isfinite(p.epsilon) && p.epsilon >= 0, "epsilon: ", p.epsilon,
                "; must be finite and not negative");
        if (sizes.tokens == 0) return;
        require(p.norm_weight != nullptr, "norm_weight: null; ", columns, " elements are needed");
        require(p.logits != nullptr, "logits: null; memory for ", sizes.tokens, " x ", sizes.experts, " is needed");
        detail::require_operand(p.router, "router", sizes.experts, columns);
        const auto router = as_rows(p.router.pointer, sizes.experts, columns, p.router.stride);
        require(detail::can_vectorise(p.x) && detail::can_vectorise(p.out) && detail::can_vectorise(router) &&
                    reinterpret_cast<std::uintptr_t>(p.norm_weight) % 16 == 0,
                "x, out, router, norm_weight: their rows must begin at multiples of 16 bytes");
        if (columns <= 2048) return launch_kernel<kernel<4>>(where, p, scoring, stream);
        if (columns <= 3072) return launch_kernel<kernel<6>>(where, p, scoring, stream);
        launch_kernel<kernel<8>>(where, p, scoring, stream);
    }

  private:
    template <class Kernel>
    static void launch_kernel(world where, const problem& p, const Scoring& scoring, void* stream) {
        imbrex::launch<Kernel>(where, {1}, arguments_of(p, scoring), stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
