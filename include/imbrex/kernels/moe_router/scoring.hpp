// How a router turns logits into a choice of experts and their weights: policies of kernels/moe_router.hpp.
//
//   softmax_of_chosen    the largest logits; weights are the softmax over the chosen (GPT-OSS, Mixtral, Qwen3-MoE, whose
//                        softmax over all, divided by the sum of the chosen, is the same)
//   softmax_of_all       the largest logits; weights are the softmax over all experts
//   sigmoid_with_bias    scores sigmoid(logit) + bias, of the best groups of experts only; weights are the sigmoids
//                        without the bias, divided by their sum (DeepSeek-V3)
//
// A policy has
//
//     rank(self, scores, experts)     turns the row of logits into scores; an excluded expert gets minus infinity
//     share(logit, largest)           what a chosen expert contributes: weight = factor * share / sum of the shares
//     over_all                        whether the sum is over all experts, or over the chosen
//     factor
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>

#include <cstdint>

namespace imbrex {

namespace detail {

inline constexpr float excluded_score = -__builtin_huge_valf();
inline constexpr float log2_of_e = 1.4426950408889634f;

// The column of the largest score, which is excluded from now on. NaN never wins.
template <class Tile>
IMBREX_KERNEL int take_best(const warp& self, Tile& scores) {
    const int column = first_column_of(self, scores, row_max(self, scores));
    change(self, scores, column, [](float) { return excluded_score; });
    return column;
}

}  // namespace detail

namespace moe_scoring {

struct softmax_of_chosen {
    static constexpr bool over_all = false;
    float factor = 1;

    void require_valid(const moe_sizes&) const {}
    template <class Tile>
    IMBREX_KERNEL void rank(const warp&, Tile&, int) const {}
    IMBREX_KERNEL float share(float logit, float largest) const {
        return hw::exp2((logit - largest) * detail::log2_of_e);
    }
};

struct softmax_of_all : softmax_of_chosen {
    static constexpr bool over_all = true;
};

struct sigmoid_with_bias {
    static constexpr bool over_all = false;
    static constexpr int most_groups = 64;
    float factor = 1;
    const float* bias = nullptr;  // [experts], added to choose, not to weigh; null: none
    int groups = 1;               // of equally many experts; a group's score is the sum of its best two
    int top_groups = 1;           // only the experts of the best groups are chosen from

    void require_valid(const moe_sizes& sizes) const {
        require(groups >= 1 && groups <= most_groups && sizes.experts % groups == 0, "scoring.groups: ", groups,
                "; must be from 1 to ", most_groups, " and divide the number of experts, ", sizes.experts);
        require(top_groups >= 1 && top_groups <= groups, "scoring.top_groups: ", top_groups, "; must be from 1 to ",
                groups);
        require(sizes.top_k <= sizes.experts / groups * top_groups, "top_k: ", sizes.top_k, "; ", top_groups,
                " groups of experts have ", sizes.experts / groups * top_groups);
    }

    IMBREX_KERNEL static float sigmoid(float x) { return hw::reciprocal(1 + hw::exp2(-x * detail::log2_of_e)); }
    IMBREX_KERNEL float share(float logit, float) const { return sigmoid(logit); }

    template <class Tile>
    IMBREX_KERNEL void rank(const warp& self, Tile& scores, int experts) const {
        const float* const more = bias;
        map_columns(
            self, scores,
            [=](int expert, float logit) {
                if (expert >= experts) return detail::excluded_score;
                return sigmoid(logit) + (more == nullptr ? 0.0f : read_element(more, expert));
            },
            scores);
        if (top_groups == groups) return;
        const int size = experts / groups;
        const std::uint64_t allowed = best_groups(self, scores, size);
        map_columns(
            self, scores,
            [=](int expert, float score) {
                return (allowed >> (expert / size & (most_groups - 1)) & 1) != 0 ? score : detail::excluded_score;
            },
            scores);
    }

  private:
    // A bit for each chosen group.
    template <class Tile>
    IMBREX_KERNEL std::uint64_t best_groups(const warp& self, const Tile& scores, int size) const {
        Tile group_scores = scores_of_group(self, scores, 0, 0);  // none yet
        for (int group = 0; group < groups; ++group) {
            auto own = scores_of_group(self, scores, group * size, size);
            float sum = row_max(self, own);
            detail::take_best(self, own);
            if (size > 1) sum += row_max(self, own);
            change(self, group_scores, group, [=](float) { return sum; });
        }
        std::uint64_t allowed = 0;
        for (int i = 0; i < top_groups; ++i) allowed |= std::uint64_t{1} << detail::take_best(self, group_scores);
        return allowed;
    }
    template <class Tile>
    IMBREX_KERNEL static Tile scores_of_group(const warp& self, const Tile& scores, int first, int size) {
        Tile own;
        map_columns(
            self, own,
            [=](int expert, float score) {
                return expert >= first && expert < first + size ? score : detail::excluded_score;
            },
            scores);
        return own;
    }
};

}  // namespace moe_scoring

}  // namespace imbrex
