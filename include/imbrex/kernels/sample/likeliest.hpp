// The likeliest tokens of a row and the logarithms of their probabilities, of the logits as they came. Each warp keeps a list of
// the best of its tokens, which few of them get into; then one warp makes one list of all. Sums of probabilities are exact.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/exponential.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/cut.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/chunk_scan.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

inline constexpr int most_likeliest = 20;

struct scored_token {
    float score;
    int token;

    static IMBREX_FN scored_token none() { return scored_token{nothing_is_less, -1}; }
};

// A list in the lanes of a warp, the best first; of equals, those that came first.
class best_list {
  public:
    IMBREX_KERNEL explicit best_list(const warp& self)
        : entries_(look_up<most_likeliest>(self, [](int) { return scored_token::none(); })) {}

    IMBREX_KERNEL scored_token at(const warp& self, int number) const { return entry(self, entries_, number); }
    IMBREX_KERNEL void add(const warp& self, const scored_token& one) {
        const float score = one.score;
        insert(self, entries_,
               count_of(self, entries_, [=](const scored_token& other) { return other.score >= score; }), one);
    }

  private:
    hw::lane_values<scored_token, most_likeliest> entries_;
};

template <int Warps>
struct shared_likeliest {
    shared_vector<scored_token, most_likeliest> lists[Warps];
    shared_vector<std::uint64_t, Warps> sums;
};

// What all warps know of a row in the end.
struct log_of_sum {
    float most = nothing_is_less;
    float log_sum = 0;

    IMBREX_KERNEL float operator()(float score) const {
        return score == nothing_is_less ? score : score - most - log_sum;
    }
};

template <class Row, int Warps>
class likeliest_search {
  public:
    IMBREX_KERNEL likeliest_search(const Row& row, shared_likeliest<Warps>& shared, int count)
        : row_(row), shared_(shared), count_(count < 1 ? 1 : count) {}

    // Every warp takes part, and gets what makes log-probabilities of scores.
    IMBREX_KERNEL log_of_sum find(const warp& self, source here = source::current()) {
        best_list own(self);
        float worst = nothing_is_less;
        row_.each_piece_unchanged(self, [&](auto& scores, int first) {
            float most = largest(self, scores);
            row_.remember_largest(self, first, most, here);
            for (; most > worst; most = largest(self, scores)) {
                const int column = first_column_of(self, scores, most);
                own.add(self, scored_token{most, first + column});
                change(self, scores, column, [](float) { return nothing_is_less; });
                worst = own.at(self, count_ - 1).score;
            }
        });
        for (int i = 0; i < count_; ++i) put(self, shared_.lists[self.index()], i, own.at(self, i), here);
        sample_meeting<Warps>::sync(self, here);
        log_of_sum found;
        for (int i = 0; i < Warps; ++i) {
            const float most = get(self, shared_.lists[i], 0, here).score;
            found.most = most > found.most ? most : found.most;
        }
        if (found.most == nothing_is_less) return found;
        const counted_weight weight{relative_weight::of(found.most, 1), sample_cut{}};
        std::uint64_t sum = 0;
        row_.each_piece_unchanged_if(
            self, [&](float most) { return weight.may_count(most); },
            [&](const auto& scores, int first) {
                sum += sum_of(self, scores, from_token<counted_weight>{weight, first});
            });
        found.log_sum = natural_log(static_cast<float>(total(self, shared_.sums, sum, here)) / counted_weight::one);
        return found;
    }

    // One warp, after that: the best of all warps. Lower tokens are in the lists of earlier warps.
    IMBREX_KERNEL best_list all(const warp& self, source here = source::current()) const {
        best_list best(self);
        for (int i = 0; i < Warps; ++i) {
            for (int j = 0; j < count_; ++j) {
                const scored_token one = get(self, shared_.lists[i], j, here);
                if (!(one.score > best.at(self, count_ - 1).score)) break;
                best.add(self, one);
            }
        }
        return best;
    }

    // The sum over all warps.
    static IMBREX_KERNEL std::uint64_t total(const warp& self, shared_vector<std::uint64_t, Warps>& of_warps,
                                             std::uint64_t mine, source here) {
        put(self, of_warps, self.index(), mine, here);
        sample_meeting<Warps>::sync(self, here);
        std::uint64_t all = 0;
        for (int i = 0; i < Warps; ++i) all += get(self, of_warps, i, here);
        return all;
    }

  private:
    const Row& row_;
    shared_likeliest<Warps>& shared_;
    int count_;
};

}  // namespace imbrex::detail
