// Router of a mixture-of-experts layer: top-k of the logits, weights, and the choices sorted by expert, in two
// launches, or one for up to 32 tokens.
//
//     const moe_sizes sizes{.tokens = tokens, .experts = 32, .top_k = 4};
//     const moe_routing routing = moe_routing::in_workspace(workspace, sizes);     // workspace_bytes(sizes)
//     moe_router<float>::launch(world::device, {as_rows<const float>(logits, tokens, 32), routing}, {}, stream);
//     moe_router<bf16, moe_scoring::sigmoid_with_bias>::launch(...)
//
// The order is deterministic: choices of a token by descending score (the first of equal ones), rows of an expert by
// token. Up to 16 of up to 512 experts; logits are float, bf16 or fp16. Nothing returns to the host, no launch allocates
// or synchronises, so both can be captured in a CUDA graph. Invalid arguments throw imbrex::error before launch.
// moe_router/routing.hpp describes the result, moe_router/scoring.hpp the policies.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/moe_router/choose_experts.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/kernels/moe_router/scoring.hpp>
#include <imbrex/kernels/moe_router/sort_choices.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <optional>
#include <type_traits>

namespace imbrex {

template <class In>
struct moe_router_problem {
    row_view<const In> logits;  // [tokens, experts]
    moe_routing routing;        // written
};

inline namespace IMBREX_WORLDS {

template <class In, class Scoring = moe_scoring::softmax_of_chosen>
class moe_router {
    static_assert(std::is_same_v<In, bf16> || std::is_same_v<In, fp16> || std::is_same_v<In, float>,
                  "imbrex: router logits are bf16, fp16 or float");

  public:
    using problem = moe_router_problem<In>;
    template <int Columns, row_alignment Known, bool Sorts = false>
    using kernel = choose_experts_kernel<In, Scoring, Columns, Known, Sorts>;

    // Runs the launches in the checked host world, with these further arguments of `launch`, under many schedules.
    // Returns the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, const Scoring& scoring = {}, void* stream = nullptr) {
        const moe_sizes& sizes = p.routing.sizes;
        sizes.require_valid();
        p.routing.require_given();
        scoring.require_valid(sizes);
        detail::require_rows(p.logits, "logits");
        const std::int64_t rows = p.logits.extents[0] * p.logits.extents[1];
        require(rows == sizes.tokens, "logits: ", rows, " rows; routing.sizes.tokens is ", sizes.tokens);
        require(p.logits.extents[2] == sizes.experts, "logits.extents[2]: ", p.logits.extents[2],
                "; routing.sizes.experts is ", sizes.experts);
        if (sizes.tokens == 0) return;
        if (!detail::can_vectorise(p.logits)) {
            launch_choice<512, row_alignment::unaligned>(where, p, scoring, stream);
        } else if (sizes.experts <= 256) {
            launch_choice<256, row_alignment::aligned>(where, p, scoring, stream);
        } else {
            launch_choice<512, row_alignment::aligned>(where, p, scoring, stream);
        }
    }

  private:
    template <int Columns, row_alignment Known>
    static void launch_choice(world where, const problem& p, const Scoring& scoring, void* stream) {
        const int blocks = p.routing.blocks();
        const auto logits = row_accessor_of(p.logits);
        if (blocks == 1) {
            imbrex::launch<kernel<Columns, Known, true>>(where, {1}, {logits, p.routing, scoring}, stream);
        } else {
            imbrex::launch<kernel<Columns, Known>>(where, {blocks}, {logits, p.routing, scoring}, stream);
            imbrex::launch<sort_choices_kernel>(where, {blocks}, {p.routing}, stream);
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
