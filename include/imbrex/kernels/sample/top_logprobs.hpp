// logprobs: the most likely tokens of a row (top_logprobs) and their log-probabilities, from the input logits before
// bias, penalties and temperature. Each warp keeps a register list of its best tokens, which few tokens enter; one warp
// then merges the lists. The softmax denominator is summed exactly in fixed point.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_math.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/kernels/sample/threshold.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

inline constexpr int max_top_logprobs = 20;

struct scored_token {
    float score;
    int token;

    static IMBREX_FN scored_token none() { return scored_token{minus_infinity, -1}; }
};

// A sorted list in the lanes of a warp, best first; stable for equal scores.
class top_k_list {
  public:
    IMBREX_KERNEL explicit top_k_list(const warp& self)
        : entries_(warp_gather<max_top_logprobs>(self, [](int) { return scored_token::none(); })) {}

    IMBREX_KERNEL scored_token at(const warp& self, int number) const { return warp_broadcast(self, entries_, number); }
    IMBREX_KERNEL void add(const warp& self, const scored_token& one) {
        const float score = one.score;
        warp_insert(self, entries_,
                    warp_count_if(self, entries_, [=](const scored_token& other) { return other.score >= score; }),
                    one);
    }

  private:
    hw::lane_values<scored_token, max_top_logprobs> entries_;
};

template <int Warps>
struct shared_top_logprobs {
    shared_vector<scored_token, max_top_logprobs> lists[Warps];
    shared_vector<std::uint64_t, Warps> sums;
};

// Maximum and log-sum of a row, the same in all warps.
struct log_softmax {
    float max_score = minus_infinity;
    float log_sum = 0;

    IMBREX_KERNEL float operator()(float score) const {
        return score == minus_infinity ? score : score - max_score - log_sum;
    }
};

template <class Row, int Warps>
class top_logprobs_search {
  public:
    IMBREX_KERNEL top_logprobs_search(const Row& row, shared_top_logprobs<Warps>& shared, int count)
        : row_(row), shared_(shared), count_(count < 1 ? 1 : count) {}

    // Called by every warp; returns the log-softmax to all of them.
    IMBREX_KERNEL log_softmax find(const warp& self, source here = source::current()) {
        top_k_list own(self);
        float worst = minus_infinity;
        row_.for_each_unadjusted_tile(self, [&](auto& scores, int first) {
            float max_score = row_max(self, scores);
            row_.store_tile_max(self, first, max_score, here);
            for (; max_score > worst; max_score = row_max(self, scores)) {
                const int column = first_column_of(self, scores, max_score);
                own.add(self, scored_token{max_score, first + column});
                change(self, scores, column, [](float) { return minus_infinity; });
                worst = own.at(self, count_ - 1).score;
            }
        });
        for (int i = 0; i < count_; ++i) put(self, shared_.lists[self.index()], i, own.at(self, i), here);
        sample_block_barrier<Warps>::sync(self, here);
        log_softmax found;
        for (int i = 0; i < Warps; ++i) {
            const float max_score = get(self, shared_.lists[i], 0, here).score;
            found.max_score = max_score > found.max_score ? max_score : found.max_score;
        }
        if (found.max_score == minus_infinity) return found;
        const fixed_point_probability weight{relative_probability::of(found.max_score, 1), sample_threshold{}};
        std::uint64_t sum = 0;
        row_.for_each_unadjusted_tile_if(
            self, [&](float max_score) { return weight.may_count(max_score); },
            [&](const auto& scores, int first) {
                sum += sum_of(self, scores, from_token<fixed_point_probability>{weight, first});
            });
        found.log_sum =
            fast_log(static_cast<float>(total(self, shared_.sums, sum, here)) / fixed_point_probability::one);
        return found;
    }

    // Called by one warp after find(): merges the lists. Earlier warps hold lower tokens, so ties stay in token order.
    IMBREX_KERNEL top_k_list all(const warp& self, source here = source::current()) const {
        top_k_list best(self);
        for (int i = 0; i < Warps; ++i) {
            for (int j = 0; j < count_; ++j) {
                const scored_token one = get(self, shared_.lists[i], j, here);
                if (!(one.score > best.at(self, count_ - 1).score)) break;
                best.add(self, one);
            }
        }
        return best;
    }

    // Sum over all warps of the block.
    static IMBREX_KERNEL std::uint64_t total(const warp& self, shared_vector<std::uint64_t, Warps>& of_warps,
                                             std::uint64_t mine, source here) {
        put(self, of_warps, self.index(), mine, here);
        sample_block_barrier<Warps>::sync(self, here);
        std::uint64_t all = 0;
        for (int i = 0; i < Warps; ++i) all += get(self, of_warps, i, here);
        return all;
    }

  private:
    const Row& row_;
    shared_top_logprobs<Warps>& shared_;
    int count_;
};

}  // namespace imbrex::detail
