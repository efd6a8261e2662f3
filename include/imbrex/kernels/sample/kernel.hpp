// The kernel that samples: a block to each row, its warps share the columns and go over them several times, from a cache that has
// them after the first. Where rows are few, a cluster of `Sharers` blocks to each row does the same sooner
// (kernels/sample/together.hpp), and the first of them goes on as if it was alone where that was not enough.
//
//   1. the largest score, with bias and penalties; at temperature 0 that is the token
//   2. the cut of top_k; the sum of what is left and the cut of top_p (kernels/sample/cut.hpp); the cut of min_p
//   3. the draw (kernels/sample/draw.hpp)
//   4. log-probabilities, where they are asked for (kernels/sample/likeliest.hpp)
//
// After each step the warps meet and all of them know the same: they take the same way.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/position.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scalar.hpp>
#include <imbrex/kernels/sample/cut.hpp>
#include <imbrex/kernels/sample/draw.hpp>
#include <imbrex/kernels/sample/likeliest.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/kernels/sample/row.hpp>
#include <imbrex/kernels/sample/together.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/tile/barrier.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class T, row_chunks Known, int Sharers = 1>
struct sample_kernel {
    static constexpr int sharers = Sharers;
    static constexpr int cluster = Sharers;
    static constexpr bool needs_hopper = Sharers > 1;
    static constexpr int warps = Sharers > 1 ? 16 : 8;
    static constexpr bool begins_early = true;
    using arguments = sample_arguments<T>;
    using row_type = detail::sample_row<T, Known, warps>;
    using sharing = detail::sampling_together<row_type, warps, Sharers>;

    struct shared_alone {
        detail::shared_bins<warps> bins;
        detail::shared_likeliest<warps> likeliest;
        shared_vector<detail::scored_token, warps> largest, soonest;
        shared_vector<std::uint64_t, warps> weights;
        typename row_type::largest_of_pieces largest_of_pieces;
    };

    struct shared_by_blocks : shared_alone {
        detail::shared_together<warps, Sharers> together;
    };
    using shared_memory = std::conditional_t<Sharers == 1, shared_alone, shared_by_blocks>;

    static position grid_of(const arguments& args) { return {args.rows * Sharers}; }

    // Several blocks have no log-probabilities, and room for so many tokens.
    static bool can_do(const arguments& args) {
        return Sharers == 1 || (!args.wants_logprobs() && args.vocabulary <= sharing::most_columns);
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        if constexpr (Sharers == 1) {
            wait_for_kernel_before(block);
            allow_next_kernel(block);
            block.each_warp(sampling{args, shared, block.index().x});
        } else {
            shared.together.init(block);
            fence_barriers(block);
            block.cluster_sync();
            wait_for_kernel_before(block);
            allow_next_kernel(block);
            const int rank = block.cluster_rank();
            block.each_warp(sampling_with_others{args, shared, block.index().x / Sharers, rank});
            // No block ends while another may look into its memory.
            block.cluster_sync();
        }
    }

  private:
    using likeliest_search = detail::likeliest_search<row_type, warps>;
    using scored_token = detail::scored_token;

    struct sampling {
        const arguments& args;
        shared_memory& shared;
        int number;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const row_type row(args, number, self.index(), shared.largest_of_pieces);
            const scored_token most = best_of_all(self, shared.largest, largest_of(self, row));
            sample_cut cut{most.score, most.token};
            int token = most.token;
            // Not so if nothing may be drawn, or if the temperature is no number.
            if (row.options().temperature > 0 && most.score > detail::nothing_is_less) {
                cut = cut_of(self, row, most.score);
                token = draw(self, row, most.score, cut);
            }
            write(self, token, cut);
            if constexpr (Sharers == 1) {
                if (args.wants_logprobs()) write_logprobs(self, row, token);
            }
        }

        IMBREX_KERNEL void write(const warp& self, int token, const sample_cut& cut) const {
            if (self.index() != 0) return;
            hw::put_global(self, args.tokens + number, token, source::current());
            if (args.cuts != nullptr) hw::put_global(self, args.cuts + number, cut, source::current());
        }

      private:
        // Of the warp's tokens; of equals, the lowest.
        IMBREX_KERNEL static scored_token largest_of(const warp& self, const row_type& row) {
            scored_token best = scored_token::none();
            row.each_piece(self, [&](const auto& scores, int first) {
                row.remember_largest(self, first, take_larger(self, best, scores, first));
            });
            return best;
        }
        IMBREX_KERNEL static float take_larger(const warp& self, scored_token& best,
                                               const typename row_type::tile& values, int first) {
            const float most = largest(self, values);
            if (most > best.score) best = scored_token{most, first + first_column_of(self, values, most)};
            return most;
        }
        // And of all warps; token 0 if there is none.
        IMBREX_KERNEL static scored_token best_of_all(const warp& self, shared_vector<scored_token, warps>& of_warps,
                                                      const scored_token& mine, source here = source::current()) {
            put(self, of_warps, self.index(), mine, here);
            detail::sample_meeting<warps>::sync(self, here);
            scored_token best{detail::nothing_is_less, 0};
            for (int i = 0; i < warps; ++i) {
                const scored_token one = get(self, of_warps, i, here);
                if (one.score > best.score) best = one;
            }
            return best;
        }

        IMBREX_KERNEL sample_cut cut_of(const warp& self, const row_type& row, float most) const {
            using namespace detail;
            const sample_options& options = row.options();
            cut_search<row_type, warps> search(row, shared.bins, most);
            sample_cut cut;
            // Bins that reach 16 below the largest score, and where probabilities count 16 temperatures.
            constexpr float scale = static_cast<float>(sample_bins) / 16;
            if (options.top_k > 0 && options.top_k < args.vocabulary) {
                cut = search.find(self, cut, one_each{}, static_cast<std::uint64_t>(options.top_k), scale);
            }
            if (options.top_p < 1) {
                const counted_weight weight{relative_weight::of(most, options.temperature), cut};
                std::uint64_t sum = 0;
                row.each_piece_if(
                    self, [&](float largest) { return weight.may_count(largest); },
                    [&](const auto& scores, int first) {
                        sum += sum_of(self, scores, from_token<counted_weight>{weight, first});
                    });
                sum = likeliest_search::total(self, shared.weights, sum, source::current());
                const std::uint64_t enough = enough_of(sum, options.top_p);
                cut = search.find(self, cut, weight, enough, scale / options.temperature);
            }
            return with_min_p(cut, options, most);
        }

        IMBREX_KERNEL int draw(const warp& self, const row_type& row, float most, const sample_cut& cut) const {
            using namespace detail;
            const race waiting = race::of(row.options(), most, cut);
            scored_token soonest = scored_token::none();
            row.each_piece_if(
                self, [&](float largest) { return largest >= cut.least; },
                [&](auto& scores, int first) {
                    map_columns(self, scores, from_token<race>{waiting, first}, scores);
                    take_larger(self, soonest, scores, first);
                });
            return best_of_all(self, shared.soonest, soonest).token;
        }

        IMBREX_KERNEL void write_logprobs(const warp& self, const row_type& row, int token) const {
            likeliest_search search(row, shared.likeliest, args.likeliest);
            const detail::log_of_sum log_of = search.find(self);
            if (self.index() != 0) return;
            const float score = detail::score_of_logit(convert<float>(*args.logits.at(number, token)));
            if (args.logprobs != nullptr) {
                hw::put_global(self, args.logprobs + number, log_of(score), source::current());
            }
            const detail::best_list best = search.all(self);
            for (int i = 0; i < args.likeliest; ++i) {
                const scored_token one = best.at(self, i);
                const std::int64_t place = static_cast<std::int64_t>(number) * args.likeliest + i;
                hw::put_global(self, args.likeliest_tokens + place, one.token, source::current());
                hw::put_global(self, args.likeliest_logprobs + place, log_of(one.score), source::current());
            }
        }
    };

    struct sampling_with_others {
        const arguments& args;
        shared_memory& shared;
        int number, rank;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const row_type row(args, number, shared.largest_of_pieces);
            const detail::sample_outcome found = sharing(row, shared.together, rank).find(self);
            if (rank != 0) return;
            const sampling alone{args, shared, number};
            if (found.settled != 0) {
                alone.write(self, found.token, found.cut);
            } else {
                alone(self);
            }
        }
    };
};

}  // namespace imbrex
