// The first kernel of the router: a warp takes the logits of a token into registers, finds the top_k experts one after
// another, and writes them with their weights. The block then counts how often its tokens chose each expert, from which
// the second kernel (sort_choices.hpp) knows where the rows of every block begin, without atomics. A single block knows
// all counts, and sorts the choices itself.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/kernels/moe_router/scoring.hpp>
#include <imbrex/kernels/moe_router/sort_choices.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex {

// Columns: at least as many as there are experts. Sorts: there is one block, which sorts its choices.
template <class In, class Scoring, int Columns, row_alignment Known, bool Sorts = false>
struct choose_experts_kernel {
    static constexpr int warps = 16;
    static constexpr bool uses_pdl = true;
    static constexpr int tokens_per_block = moe_routing::tokens_per_block;
    using row = vector_row_tile<float, 1, Columns>;

    struct arguments {
        row_accessor<const In> logits;
        moe_routing routing;
        Scoring scoring;
    };
    struct shared_memory {
        choice_sort::shared_memory sort;
        shared_vector<float, choice_sort::most_choices> shares;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        choose_all<warps>(block, args, shared);
    }

    // The tokens of a block of `Warps` warps. The logits are there.
    template <int Warps, class Block>
    IMBREX_KERNEL static void choose_all(Block& block, const arguments& args, shared_memory& shared) {
        const moe_sizes& sizes = args.routing.sizes;
        const int first = block.index().x * tokens_per_block;
        const int tokens = sizes.tokens - first < tokens_per_block ? sizes.tokens - first : tokens_per_block;
        block.each_warp([&](const warp& self) {
            for (int i = self.index(); i < tokens; i += Warps) choose(self, args, shared, first + i, i * sizes.top_k);
        });
        block.sync();
        int* const counts = args.routing.block_counts + std::int64_t{block.index().x} * sizes.experts;
        fill_indexed(block, shared.sort.counts, [&](int expert) {
            choice_sort::expert_counts found{0, 0};
            if (expert >= sizes.experts) return found;
            for (int i = 0; i < tokens * sizes.top_k; ++i) found.total += *shared.sort.chosen.at(i) == expert ? 1 : 0;
            if constexpr (!Sorts) write_element(counts, expert, found.total);
            return found;
        });
        if constexpr (Sorts) choice_sort::run(block, args.routing, shared.sort, 0, tokens * sizes.top_k);
    }

  private:
    // `place`: of the token's first choice in shared memory.
    IMBREX_KERNEL static void choose(const warp& self, const arguments& args, shared_memory& shared, int token,
                                     int place) {
        const moe_sizes& sizes = args.routing.sizes;
        const In* const logits = args.logits.at(token, 0);
        row scores = load_logits(self, logits, sizes.experts);
        const float largest = row_max(self, scores);
        float sum = 0;
        if constexpr (Scoring::over_all) sum = sum_of_shares(self, args.scoring, scores, largest);
        args.scoring.rank(self, scores, sizes.experts);
        for (int i = 0; i < sizes.top_k; ++i) {
            const int expert = detail::take_best(self, scores);
            const float share = args.scoring.share(finite(convert<float>(read_element(logits, expert))), largest);
            if constexpr (!Scoring::over_all) sum += share;
            put(self, shared.sort.chosen, place + i, expert);
            put(self, shared.shares, place + i, share);
        }
        self.sync();
        for (int i = 0; i < sizes.top_k; ++i) {
            const std::int64_t choice = std::int64_t{token} * sizes.top_k + i;
            put(self, args.routing.expert_of_choice + choice, get(self, shared.sort.chosen, place + i));
            put(self, args.routing.weight_of_choice + choice,
                get(self, shared.shares, place + i) * args.scoring.factor / sum);
        }
    }

    // A logit that is NaN or minus infinity counts as the smallest number: the experts chosen stay different ones.
    IMBREX_KERNEL static float finite(float logit) {
        constexpr float smallest = -3.0e38f;
        return logit > smallest ? logit : smallest;
    }
    IMBREX_KERNEL static row load_logits(const warp& self, const In* logits, int experts) {
        vector_row_tile<In, 1, Columns> loaded;
        load_rows_from<Known>(
            self, loaded, [=](int) { return logits; }, experts);
        row scores;
        map_columns(
            self, scores,
            [=](int expert, float logit) { return expert < experts ? finite(logit) : detail::excluded_score; }, loaded);
        return scores;
    }

    IMBREX_KERNEL static float sum_of_shares(const warp& self, const Scoring& scoring, const row& logits,
                                             float largest) {
        vector_row_values<row> sums;
        fill(self, sums, 0.0f);
        fold_rows(self, sums, logits, [&](float sum, float logit) { return sum + scoring.share(logit, largest); });
        finish_rows(self, sums, functional::add{});
        return row_value(self, sums);
    }
};

}  // namespace imbrex
