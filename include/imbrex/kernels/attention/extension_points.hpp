// Checks what users plug into attention kernels, so that a mask or score_mod with a wrong signature fails with one message that shows the
// right one.
#pragma once

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>

namespace imbrex::detail {

template <class Mask, class Score>
constexpr bool check_attention_extensions() {
    static_assert(attention_mask<Mask>,
                  "imbrex: Mask must have key_range visible_keys(const attention_extents&, query_range) const; "
                  "bool fully_unmasked(const attention_extents&, query_range, key_range) const; "
                  "bool keep(const attention_extents&, int query, int key) const. "
                  "Derive from imbrex::mask_base to write only keep");
    static_assert(attention_score_mod<Score>,
                  "imbrex: Score must have IMBREX_KERNEL float operator()(const attention_extents&, int query, "
                  "int key, float score) const");
    return attention_mask<Mask> && attention_score_mod<Score>;
}

// What the backward pass calls besides.
template <class Score>
constexpr bool check_score_gradients() {
    constexpr bool names_one = requires {
        &Score::add_gradient;
    };
    constexpr bool names_heads = requires {
        &Score::head_gradient;
    };
    static_assert(!names_one || score_adds_gradient<Score>,
                  "imbrex: add_gradient must be IMBREX_KERNEL void add_gradient(const attention_extents&, int query, "
                  "int key, float d_score) const");
    static_assert(
        !names_heads || score_has_head_gradient<Score>,
        "imbrex: head_gradient must be IMBREX_KERNEL float head_gradient(const attention_extents&, int query, "
        "int key, float d_score) const, beside IMBREX_FN float* head_gradients() const");
    return true;
}

}  // namespace imbrex::detail
