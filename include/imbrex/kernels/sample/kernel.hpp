// The sampling kernel. One block per row: its warps split the columns and make several passes over the row, which is in
// L2 after the first. With few rows, a cluster of `ClusterSize` blocks per row is faster
// (kernels/sample/cooperative.hpp); its first block falls back to the single-block path when the cooperative path does
// not settle the row.
//
//   1. argmax of the scores, after bias and penalties; at temperature 0 that is the token
//   2. thresholds: top-k; then the probability sum and top-p (kernels/sample/threshold.hpp); then min-p
//   3. the Gumbel-max draw (kernels/sample/gumbel_max.hpp)
//   4. logprobs, if requested (kernels/sample/top_logprobs.hpp)
//
// After each step the warps synchronise and hold the same values, so control flow is uniform across the block.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/sample/cooperative.hpp>
#include <imbrex/kernels/sample/gumbel_max.hpp>
#include <imbrex/kernels/sample/logits_row.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/kernels/sample/threshold.hpp>
#include <imbrex/kernels/sample/top_logprobs.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/tile/barrier.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class T, row_alignment Known, int ClusterSize = 1, bool Masked = false>
struct sample_kernel {
    static_assert(ClusterSize == 1 || !Masked, "imbrex: the cluster path has no token masks");
    static constexpr int cluster_size = ClusterSize;
    static constexpr int cluster = ClusterSize;
    static constexpr gpu_architecture architecture =
        ClusterSize > 1 ? gpu_architecture::sm_90a : gpu_architecture::sm_80;
    static constexpr int warps = ClusterSize > 1 ? 16 : 8;
    static constexpr bool uses_pdl = true;
    using arguments = sample_arguments<T>;
    using row_type = detail::logits_row<T, Known, warps, Masked>;
    using cooperative = detail::cooperative_sampling<row_type, warps, ClusterSize>;

    struct block_shared_memory {
        detail::shared_histograms<warps> histograms;
        detail::shared_top_logprobs<warps> top_logprobs;
        shared_vector<detail::scored_token, warps> warp_argmax, warp_winner;
        shared_vector<std::uint64_t, warps> weights;
        typename row_type::tile_maxima tile_maxima;
    };

    struct cluster_shared_memory : block_shared_memory {
        detail::shared_cooperative<warps, ClusterSize> cooperative;
    };
    using shared_memory = std::conditional_t<ClusterSize == 1, block_shared_memory, cluster_shared_memory>;

    static grid_dim grid_of(const arguments& args) { return {args.rows * ClusterSize}; }

    // The cluster path has no token masks, no logprobs and a limited row length.
    static bool can_do(const arguments& args) {
        if (Masked != (args.token_masks != nullptr)) return false;
        return ClusterSize == 1 || (!args.wants_logprobs() && args.vocab_size <= cooperative::max_columns);
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        if constexpr (ClusterSize == 1) {
            pdl_wait(block);
            pdl_launch_dependents(block);
            block.each_warp(sampling{args, shared, block.index().x});
        } else {
            shared.cooperative.init(block);
            fence_barriers(block);
            block.cluster_sync();
            pdl_wait(block);
            pdl_launch_dependents(block);
            const int rank = block.cluster_rank();
            block.each_warp(cluster_sampling{args, shared, block.index().x / ClusterSize, rank});
            // A block must not exit while others may read its shared memory (DSMEM).
            block.cluster_sync();
        }
    }

  private:
    using top_logprobs_search = detail::top_logprobs_search<row_type, warps>;
    using scored_token = detail::scored_token;

    struct sampling {
        const arguments& args;
        shared_memory& shared;
        int number;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const row_type row(args, number, self.index(), shared.tile_maxima);
            const scored_token greedy = block_argmax(self, shared.warp_argmax, argmax_of(self, row));
            sample_threshold threshold{greedy.score, greedy.token};
            int token = greedy.token;
            // Greedy if every score is -infinity or the temperature is NaN.
            if (row.options().temperature > 0 && greedy.score > detail::minus_infinity) {
                threshold = threshold_of(self, row, greedy.score);
                token = draw(self, row, greedy.score, threshold);
            }
            write(self, token, threshold);
            if constexpr (ClusterSize == 1) {
                if (args.wants_logprobs()) write_logprobs(self, row, token);
            }
        }

        IMBREX_KERNEL void write(const warp& self, int token, const sample_threshold& threshold) const {
            if (self.index() != 0) return;
            hw::put_global(self, args.tokens + number, token, source::current());
            if (args.thresholds != nullptr)
                hw::put_global(self, args.thresholds + number, threshold, source::current());
        }

      private:
        // Over the tokens of one warp; the lowest token of equals.
        IMBREX_KERNEL static scored_token argmax_of(const warp& self, const row_type& row) {
            scored_token best = scored_token::none();
            row.for_each_tile(self, [&](const auto& scores, int first) {
                row.store_tile_max(self, first, take_argmax(self, best, scores, first));
            });
            return best;
        }
        IMBREX_KERNEL static float take_argmax(const warp& self, scored_token& best,
                                               const typename row_type::tile& values, int first) {
            const float max_score = row_max(self, values);
            if (max_score > best.score)
                best = scored_token{max_score, first + first_column_of(self, values, max_score)};
            return max_score;
        }
        // Over all warps; token 0 if every score is -infinity.
        IMBREX_KERNEL static scored_token block_argmax(const warp& self, shared_vector<scored_token, warps>& of_warps,
                                                       const scored_token& mine, source here = source::current()) {
            put(self, of_warps, self.index(), mine, here);
            detail::sample_block_barrier<warps>::sync(self, here);
            scored_token best{detail::minus_infinity, 0};
            for (int i = 0; i < warps; ++i) {
                const scored_token one = get(self, of_warps, i, here);
                if (one.score > best.score) best = one;
            }
            return best;
        }

        IMBREX_KERNEL sample_threshold threshold_of(const warp& self, const row_type& row, float max_score) const {
            using namespace detail;
            const sample_options& options = row.options();
            threshold_search<row_type, warps> search(row, shared.histograms, max_score);
            sample_threshold threshold;
            // The first bins cover 16 below the maximum score for top-k, 16 temperatures for top-p.
            constexpr float scale = static_cast<float>(histogram_bins) / 16;
            if (options.top_k > 0 && options.top_k < args.vocab_size) {
                threshold = search.find(self, threshold, count_one{}, static_cast<std::uint64_t>(options.top_k), scale);
            }
            if (options.top_p < 1) {
                const fixed_point_probability weight{relative_probability::of(max_score, options.temperature),
                                                     threshold};
                std::uint64_t sum = 0;
                row.for_each_tile_if(
                    self, [&](float tile_max) { return weight.may_count(tile_max); },
                    [&](const auto& scores, int first) {
                        sum += sum_of(self, scores, from_token<fixed_point_probability>{weight, first});
                    });
                sum = top_logprobs_search::total(self, shared.weights, sum, source::current());
                const std::uint64_t target = top_p_target(sum, options.top_p);
                threshold = search.find(self, threshold, weight, target, scale / options.temperature);
            }
            return with_min_p(threshold, options, max_score);
        }

        IMBREX_KERNEL int draw(const warp& self, const row_type& row, float max_score,
                               const sample_threshold& threshold) const {
            using namespace detail;
            const gumbel_max gumbel = gumbel_max::of(row.options(), max_score, threshold);
            scored_token winner = scored_token::none();
            row.for_each_tile_if(
                self, [&](float tile_max) { return tile_max >= threshold.min_score; },
                [&](auto& scores, int first) {
                    map_columns(self, scores, from_token<gumbel_max>{gumbel, first}, scores);
                    take_argmax(self, winner, scores, first);
                });
            return block_argmax(self, shared.warp_winner, winner).token;
        }

        IMBREX_KERNEL void write_logprobs(const warp& self, const row_type& row, int token) const {
            top_logprobs_search search(row, shared.top_logprobs, args.num_top_logprobs);
            const detail::log_softmax log_softmax_of = search.find(self);
            if (self.index() != 0) return;
            if (args.logprobs != nullptr) {
                hw::put_global(self, args.logprobs + number, log_softmax_of(row.unadjusted_score_of(token)),
                               source::current());
            }
            const detail::top_k_list best = search.all(self);
            for (int i = 0; i < args.num_top_logprobs; ++i) {
                const scored_token one = best.at(self, i);
                const std::int64_t place = static_cast<std::int64_t>(number) * args.num_top_logprobs + i;
                hw::put_global(self, args.top_logprobs_tokens + place, one.token, source::current());
                hw::put_global(self, args.top_logprobs + place, log_softmax_of(one.score), source::current());
            }
        }
    };

    struct cluster_sampling {
        const arguments& args;
        shared_memory& shared;
        int number, rank;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const row_type row(args, number, shared.tile_maxima);
            const detail::sample_result found = cooperative(row, shared.cooperative, rank).find(self);
            if (rank != 0) return;
            const sampling alone{args, shared, number};
            if (found.settled != 0) {
                alone.write(self, found.token, found.threshold);
            } else {
                alone(self);
            }
        }
    };
};

}  // namespace imbrex
