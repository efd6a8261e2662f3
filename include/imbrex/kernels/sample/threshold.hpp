// Sort-free top-k and top-p: finds the score threshold at which a count (top-k) or a probability sum (top-p) reaches
// its target, by a histogram radix search. The interval that contains the threshold is divided into 256 bins. Each warp
// accumulates its tokens into its own histogram in shared memory, the block synchronises, and the bin in which the
// target is reached becomes the next interval, until it holds a single score. If only some tokens of that score are
// needed, token ids are searched the same way.
//
//   first pass     bins of equal width below the maximum score, where the threshold usually is
//   next passes    bins of equal numbers of floats, until one float remains: two or three passes
//
// All amounts are integers, so the threshold does not depend on the order of addition.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/gumbel_max.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

inline constexpr int histogram_bins = 256;

// A named barrier over all warps of the block.
template <int Warps>
struct sample_block_barrier {
    struct all_warps {};
    static IMBREX_KERNEL void sync(const warp& self, source here) {
        named_barriers<all_warps>::template of<all_warps>().sync(self, Warps, here);
    }
};

// Double-buffered: when a set is cleared, a barrier already separates it from its last reads.
template <int Warps>
struct shared_histograms {
    using vector = shared_vector<std::uint64_t, histogram_bins>;
    vector sets[2][Warps];
};

// Bins of equal width, starting at the maximum score. Rounding keeps the order: lower scores never get an earlier bin.
struct uniform_bin {
    float max_score, scale;
    IMBREX_FN int bin(float score) const {
        const float distance = (max_score - score) * scale;
        return distance < static_cast<float>(histogram_bins) ? static_cast<int>(distance) : histogram_bins;
    }
    IMBREX_FN int operator()(int, float score) const {
        const int found = bin(score);
        return found < histogram_bins ? found : -1;
    }
    // Whether a tile with this maximum can have scores in a bin.
    IMBREX_FN bool may_contain(float tile_max) const { return bin(tile_max) < histogram_bins; }
};

// Integers from `first` to `first + span`, in bins of 2^shift.
struct radix_bins {
    std::uint32_t first, span;
    int shift;

    static IMBREX_FN radix_bins of(std::uint32_t first, std::uint32_t span) {
        int shift = 0;
        while ((span >> shift) >= static_cast<std::uint32_t>(histogram_bins)) ++shift;
        return radix_bins{first, span, shift};
    }
    IMBREX_FN int bin(std::uint32_t number) const {
        const std::uint32_t distance = number - first;
        return distance <= span ? static_cast<int>(distance >> shift) : -1;
    }
    // The interval of one bin, divided again.
    IMBREX_FN radix_bins inside(int bin) const {
        const std::uint32_t begin = static_cast<std::uint32_t>(bin) << shift;
        const std::uint32_t width = (std::uint32_t{1} << shift) - 1, left = span - begin;
        return of(first + begin, width < left ? width : left);
    }
};
// Bins over the distance of a score from the maximum, counted in floats.
struct sort_key_bin {
    std::int32_t max_key;
    radix_bins numbers;
    IMBREX_FN std::uint32_t number(float score) const {
        return static_cast<std::uint32_t>(max_key) - static_cast<std::uint32_t>(sort_key_of_score(score));
    }
    IMBREX_FN float score(std::uint32_t number) const {
        return score_of_sort_key(static_cast<std::int32_t>(static_cast<std::uint32_t>(max_key) - number));
    }
    IMBREX_FN int operator()(int, float score) const { return numbers.bin(number(score)); }
    IMBREX_FN bool may_contain(float tile_max) const { return number(tile_max) <= numbers.first + numbers.span; }
};
// Bins over the token ids of one score.
struct token_bin {
    float score;
    radix_bins numbers;
    IMBREX_FN int operator()(int token, float one) const {
        return one == score ? numbers.bin(static_cast<std::uint32_t>(token)) : -1;
    }
    IMBREX_FN bool may_contain(float tile_max) const { return tile_max >= score; }
};
// Restricts a bin function to the tokens that a threshold keeps.
template <class Bin>
struct bin_within_threshold {
    Bin bin;
    sample_threshold within;
    IMBREX_FN int operator()(int token, float score) const {
        return within.keeps(score, token) ? bin(token, score) : -1;
    }
    IMBREX_FN bool may_contain(float tile_max) const {
        return tile_max >= within.min_score && bin.may_contain(tile_max);
    }
};

template <class Row, int Warps>
class threshold_search {
  public:
    IMBREX_KERNEL threshold_search(const Row& row, shared_histograms<Warps>& shared, float max_score)
        : row_(row), shared_(shared), max_score_(max_score) {}

    // Threshold of the shortest prefix, in descending order, of the tokens kept by `within` whose amounts sum to
    // `target`; `within` itself if the target is never reached. The first pass uses bins of width 1 / scale.
    template <class Amount>
    IMBREX_KERNEL sample_threshold find(const warp& self, const sample_threshold& within, Amount amount,
                                        std::uint64_t target, float scale, source here = source::current()) {
        const uniform_bin widths{max_score_, scale < 1e30f ? scale : 1e30f};
        hw::bin_found at = refine(self, bin_within_threshold<uniform_bin>{widths, within}, amount, 0, target, here);
        sort_key_bin keys = sort_keys_of_bin(widths, at.bin);
        while (keys.numbers.span > 0 || at.bin == histogram_bins) {
            at = refine(self, bin_within_threshold<sort_key_bin>{keys, within}, amount, at.before, target, here);
            if (at.bin == histogram_bins) return within;
            keys.numbers = keys.numbers.inside(at.bin);
        }
        const float score = keys.score(keys.numbers.first);
        // All tokens of this score have the same amount.
        const std::uint64_t each = amount(-1, score) > 0 ? amount(-1, score) : 1;
        const std::uint64_t wanted = (target - at.before + each - 1) / each;
        if (wanted * each >= at.content)
            return sample_threshold{score, score == within.min_score ? within.last_token : all_tokens};
        token_bin tokens{score, radix_bins::of(0, static_cast<std::uint32_t>(row_.vocab_size() - 1))};
        at.before = 0;
        while (tokens.numbers.span > 0) {
            at = refine(self, bin_within_threshold<token_bin>{tokens, within}, count_one{}, at.before, wanted, here);
            if (at.bin == histogram_bins) return within;
            tokens.numbers = tokens.numbers.inside(at.bin);
        }
        return sample_threshold{score, static_cast<int>(tokens.numbers.first)};
    }

  private:
    // One pass: fills the histograms of all warps and finds the bin in which the target is reached.
    template <class BinOf, class Amount>
    IMBREX_KERNEL hw::bin_found refine(const warp& self, const BinOf& bin_of, const Amount& amount,
                                       std::uint64_t before, std::uint64_t target, source here) {
        auto& bins = shared_.sets[set_];
        set_ = 1 - set_;
        auto& own = bins[self.index()];
        fill_indexed(
            self, own, [](int) { return std::uint64_t{0}; }, here);
        const auto needed = [&](float max_score) { return bin_of.may_contain(max_score); };
        row_.for_each_tile_if(self, needed, [&](const auto& scores, int first) {
            add_to_bins(self, own, scores, from_token<BinOf>{bin_of, first}, from_token<Amount>{amount, first}, here);
        });
        sample_block_barrier<Warps>::sync(self, here);
        return find_bin(self, bins, before, target, here);
    }

    // The sort keys of one bin, or of everything past the last bin if none was found; -infinity is never counted.
    IMBREX_KERNEL sort_key_bin sort_keys_of_bin(const uniform_bin& widths, int bin) const {
        sort_key_bin keys{sort_key_of_score(max_score_), {}};
        const std::uint32_t end = keys.number(minus_infinity);
        const std::uint32_t begin = first_number(keys, widths, bin, end);
        const std::uint32_t last = bin == histogram_bins ? end : first_number(keys, widths, bin + 1, end);
        keys.numbers = radix_bins::of(begin, last > begin ? last - begin - 1 : 0);
        return keys;
    }
    // Binary search: the first key in [0, end) whose score is in this bin or a later one.
    static IMBREX_KERNEL std::uint32_t first_number(const sort_key_bin& keys, const uniform_bin& widths, int bin,
                                                    std::uint32_t end) {
        std::uint32_t first = 0;
        while (first < end) {
            const std::uint32_t middle = first + (end - first) / 2;
            if (widths.bin(keys.score(middle)) < bin) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        return first;
    }

    const Row& row_;
    shared_histograms<Warps>& shared_;
    float max_score_;
    int set_ = 0;
};

}  // namespace imbrex::detail
