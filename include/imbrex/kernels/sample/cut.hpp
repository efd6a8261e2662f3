// The cut through a row's order, by scores and then by lower tokens, at which so much has been counted: the k-th token, or the one
// with which a probability is reached. Nothing is sorted. An interval that has the cut in it is divided into bins, each warp adds
// its tokens' amounts to its own, all meet, and the bin in which the target is reached is the next interval; until it has one
// score. If not all tokens of that score are needed, their numbers are divided in the same way.
//
//   first    bins of the same width below the largest score, where the cut mostly is
//   then     bins of as many floats each, until there is one float: two or three times
//
// What is added are whole numbers: the cut is the same in any order of adding.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/draw.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/chunk_scan.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

inline constexpr int sample_bins = 256;

// All warps of a block meet, whatever for.
template <int Warps>
struct sample_meeting {
    struct everybody {};
    static IMBREX_KERNEL void sync(const warp& self, source here) {
        named_barriers<everybody>::template of<everybody>().sync(self, Warps, here);
    }
};

// Two sets in turn: when one is cleared, all have been at the meeting after they last looked at it.
template <int Warps>
struct shared_bins {
    using vector = shared_vector<std::uint64_t, sample_bins>;
    vector sets[2][Warps];
};

// Which bin a score has: of the same width each, beginning at the largest score. Scores in order have bins in order, rounded or not.
struct width_bin {
    float most, scale;
    IMBREX_FN int bin(float score) const {
        const float distance = (most - score) * scale;
        return distance < static_cast<float>(sample_bins) ? static_cast<int>(distance) : sample_bins;
    }
    IMBREX_FN int operator()(int, float score) const {
        const int found = bin(score);
        return found < sample_bins ? found : -1;
    }
    // Whether a bin may have scores up to this one.
    IMBREX_FN bool may_have(float largest) const { return bin(largest) < sample_bins; }
};

// Numbers from `first` to `first + span`, in bins of 2^shift of them.
struct number_bin {
    std::uint32_t first, span;
    int shift;

    static IMBREX_FN number_bin of(std::uint32_t first, std::uint32_t span) {
        int shift = 0;
        while ((span >> shift) >= static_cast<std::uint32_t>(sample_bins)) ++shift;
        return number_bin{first, span, shift};
    }
    IMBREX_FN int bin(std::uint32_t number) const {
        const std::uint32_t distance = number - first;
        return distance <= span ? static_cast<int>(distance >> shift) : -1;
    }
    // What lies in one of them.
    IMBREX_FN number_bin inside(int bin) const {
        const std::uint32_t begin = static_cast<std::uint32_t>(bin) << shift;
        const std::uint32_t most = (std::uint32_t{1} << shift) - 1, left = span - begin;
        return of(first + begin, most < left ? most : left);
    }
};
// By how many floats a score lies below the largest one.
struct order_bin {
    std::int32_t most;  // order_of_score
    number_bin numbers;
    IMBREX_FN std::uint32_t number(float score) const {
        return static_cast<std::uint32_t>(most) - static_cast<std::uint32_t>(order_of_score(score));
    }
    IMBREX_FN float score(std::uint32_t number) const {
        return score_of_order(static_cast<std::int32_t>(static_cast<std::uint32_t>(most) - number));
    }
    IMBREX_FN int operator()(int, float score) const { return numbers.bin(number(score)); }
    IMBREX_FN bool may_have(float largest) const { return number(largest) <= numbers.first + numbers.span; }
};
// Tokens of one score.
struct token_bin {
    float score;
    number_bin numbers;
    IMBREX_FN int operator()(int token, float one) const {
        return one == score ? numbers.bin(static_cast<std::uint32_t>(token)) : -1;
    }
    IMBREX_FN bool may_have(float largest) const { return largest >= score; }
};
// Of another kind of bin, for tokens within a cut.
template <class Bin>
struct bin_within {
    Bin bin;
    sample_cut within;
    IMBREX_FN int operator()(int token, float score) const {
        return within.keeps(score, token) ? bin(token, score) : -1;
    }
    IMBREX_FN bool may_have(float largest) const { return largest >= within.least && bin.may_have(largest); }
};

template <class Row, int Warps>
class cut_search {
  public:
    IMBREX_KERNEL cut_search(const Row& row, shared_bins<Warps>& shared, float most)
        : row_(row), shared_(shared), most_(most) {}

    // Of the tokens within a cut, the first whose amounts are the target together; all of them, if they never are. The first bins have
    // 1 / scale of scores each.
    template <class Amount>
    IMBREX_KERNEL sample_cut find(const warp& self, const sample_cut& within, Amount amount, std::uint64_t target,
                                  float scale, source here = source::current()) {
        const width_bin widths{most_, scale < 1e30f ? scale : 1e30f};
        hw::bin_found at = divide(self, bin_within<width_bin>{widths, within}, amount, 0, target, here);
        order_bin orders = interval_of(widths, at.bin);
        while (orders.numbers.span > 0 || at.bin == sample_bins) {
            at = divide(self, bin_within<order_bin>{orders, within}, amount, at.before, target, here);
            if (at.bin == sample_bins) return within;
            orders.numbers = orders.numbers.inside(at.bin);
        }
        const float score = orders.score(orders.numbers.first);
        // All tokens of this score count the same.
        const std::uint64_t each = amount(-1, score) > 0 ? amount(-1, score) : 1;
        const std::uint64_t wanted = (target - at.before + each - 1) / each;
        if (wanted * each >= at.content) return sample_cut{score, score == within.least ? within.last : all_tokens};
        token_bin tokens{score, number_bin::of(0, static_cast<std::uint32_t>(row_.vocabulary() - 1))};
        at.before = 0;
        while (tokens.numbers.span > 0) {
            at = divide(self, bin_within<token_bin>{tokens, within}, one_each{}, at.before, wanted, here);
            if (at.bin == sample_bins) return within;
            tokens.numbers = tokens.numbers.inside(at.bin);
        }
        return sample_cut{score, static_cast<int>(tokens.numbers.first)};
    }

  private:
    // One step: bins of all warps, and the one in which the target is reached.
    template <class BinOf, class Amount>
    IMBREX_KERNEL hw::bin_found divide(const warp& self, const BinOf& bin_of, const Amount& amount,
                                       std::uint64_t before, std::uint64_t target, source here) {
        auto& bins = shared_.sets[turn_];
        turn_ = 1 - turn_;
        auto& own = bins[self.index()];
        fill_by(
            self, own, [](int) { return std::uint64_t{0}; }, here);
        const auto needed = [&](float most) { return bin_of.may_have(most); };
        row_.each_piece_if(self, needed, [&](const auto& scores, int first) {
            add_to_bins(self, own, scores, from_token<BinOf>{bin_of, first}, from_token<Amount>{amount, first}, here);
        });
        sample_meeting<Warps>::sync(self, here);
        return find_bin(self, bins, before, target, here);
    }

    // The scores of one bin as orders, those of all behind the last bin if it is none of them; -infinity is never counted.
    IMBREX_KERNEL order_bin interval_of(const width_bin& widths, int bin) const {
        order_bin orders{order_of_score(most_), {}};
        const std::uint32_t end = orders.number(nothing_is_less);
        const std::uint32_t begin = first_number(orders, widths, bin, end);
        const std::uint32_t last = bin == sample_bins ? end : first_number(orders, widths, bin + 1, end);
        orders.numbers = number_bin::of(begin, last > begin ? last - begin - 1 : 0);
        return orders;
    }
    // The first number before `end` whose score is in this bin or a later one.
    static IMBREX_KERNEL std::uint32_t first_number(const order_bin& orders, const width_bin& widths, int bin,
                                                    std::uint32_t end) {
        std::uint32_t first = 0;
        while (first < end) {
            const std::uint32_t middle = first + (end - first) / 2;
            if (widths.bin(orders.score(middle)) < bin) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        return first;
    }

    const Row& row_;
    shared_bins<Warps>& shared_;
    float most_;
    int turn_ = 0;
};

}  // namespace imbrex::detail
