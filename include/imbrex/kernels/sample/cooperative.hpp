// Cooperative sampling: a cluster of blocks samples one row, for few rows, where one SM would take longer to read the
// row than the GPU takes for the rest of a decode step. Each warp keeps its tiles of the row in registers, so memory is
// read once. Blocks exchange data at most twice (kernels/sample/cluster_exchange.hpp).
//
//   1. All-reduce the maximum score of each tile of 1024 tokens; the maximum of those is the token at temperature 0.
//   2. Without top-k and top-p: each warp draws among its tokens by Gumbel-max, and the winners are reduced.
//      With them: the k-th largest tile maximum is a lower bound for the k best tokens. The few tokens above it are
//      sent to block 0, which sorts them, finds the thresholds and draws.
//
// This settles the row unless top-k is large or top-p needs more tokens than the candidates. Otherwise block 0 samples
// the row alone.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/cluster_exchange.hpp>
#include <imbrex/kernels/sample/gumbel_max.hpp>
#include <imbrex/kernels/sample/logits_row.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/kernels/sample/threshold.hpp>
#include <imbrex/kernels/sample/top_logprobs.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

struct sample_result {
    int settled;  // nonzero: token and threshold are valid
    int token;
    sample_threshold threshold;
};

template <int Warps, int ClusterSize>
struct shared_cooperative {
    cluster_exchange<Warps, ClusterSize> exchange;
    shared_vector<std::uint64_t, histogram_bins> bins[1];
    shared_vector<int, 1> last_bin;
    shared_vector<int, Warps> counts;
    shared_vector<scored_token, exchange_slots::count> sorted;
    shared_vector<sample_result, 1> result;

    template <class Block>
    IMBREX_KERNEL void init(const Block& block) {
        exchange.init(block);
        fill_indexed(block, bins[0], [](int) { return std::uint64_t{0}; });
        fill_indexed(block, sorted, [](int) { return scored_token::none(); });
    }
};

template <class Row, int Warps, int ClusterSize>
class cooperative_sampling {
    static constexpr int tiles_per_warp = 2;
    static constexpr int warps_per_row = Warps * ClusterSize;  // over the cluster
    static constexpr int slot_count = exchange_slots::count;
    static constexpr int slots_per_block = slot_count / ClusterSize;  // for candidates of one block
    static constexpr int max_candidates = 64;                         // tile maxima that bound the candidates
    static_assert(warps_per_row * tiles_per_warp <= slot_count && 2 * warps_per_row <= slot_count &&
                      Warps % (slot_count / 32) == 0,
                  "imbrex: every warp that shares a row has a slot in the exchange buffer");

  public:
    // Maximum row length.
    static constexpr int max_columns = warps_per_row * tiles_per_warp * Row::tile_columns;

    IMBREX_KERNEL cooperative_sampling(const Row& row, shared_cooperative<Warps, ClusterSize>& shared, int rank)
        : row_(row), shared_(shared), rank_(rank) {}

    // Called by every warp of every block. The result is complete in block 0 only.
    IMBREX_KERNEL sample_result find(const warp& self) {
        const sample_options& options = row_.options();
        warp_tiles mine(row_, self, rank_);
        exchange_tile_maxima(self, mine);
        exchange_row best;
        load_scores(self, best, shared_.exchange.sum());
        const float max_score = row_max(self, best);
        const int tile_index = first_column_of(self, best, max_score);
        const int token = max_score > minus_infinity ? get(self, shared_.exchange.sum().tokens, tile_index) : 0;
        // Greedy if every score is -infinity or the temperature is NaN.
        if (!(options.temperature > 0 && max_score > minus_infinity)) {
            return sample_result{1, token, sample_threshold{max_score, token}};
        }
        const bool has_top_k = options.top_k > 0 && options.top_k < row_.vocab_size();
        const int candidates = has_top_k ? options.top_k : max_candidates;
        if (candidates > max_candidates) return sample_result{};
        const bool full_row = !has_top_k && !(options.top_p < 1);
        sample_result found = full_row ? draw_from_full_row(self, mine, scored_token{max_score, token})
                                       : draw_from_candidates(self, mine, best, max_score, candidates, has_top_k);
        // Invalid options may keep no token.
        if (found.token < 0) found.token = token;
        return found;
    }

  private:
    using tile = typename Row::tile;

    // The tiles of one warp, dealt round-robin over blocks, then warps, since likely tokens are often neighbours.
    struct warp_tiles {
        tile scores[tiles_per_warp];
        int first, end;

        IMBREX_KERNEL warp_tiles(const Row& row, const warp& self, int rank)
            : first(self.index() * ClusterSize + rank), end((row.vocab_size() - 1) / Row::tile_columns + 1) {
            const int tokens[] = {first * Row::tile_columns, (first + warps_per_row) * Row::tile_columns};
            // Issue all loads before the first use.
            typename Row::logits_tile logits[tiles_per_warp];
            row.load_logits(self, logits[0], tokens[0]);
            row.load_logits(self, logits[1], tokens[1]);
            row.to_scores(self, scores[0], logits[0], tokens[0]);
            row.to_scores(self, scores[1], logits[1], tokens[1]);
            row.adjust_scores(self, scores[0], tokens[0]);
            row.adjust_scores(self, scores[1], tokens[1]);
        }
        // Calls function(scores, tile index) for each tile inside the row.
        template <class Function>
        IMBREX_KERNEL void each(Function&& function) {
            if (first < end) function(scores[0], first);
            if (first + warps_per_row < end) function(scores[1], first + warps_per_row);
        }
    };

    IMBREX_KERNEL void exchange_tile_maxima(const warp& self, warp_tiles& mine) {
        exchange_slots& slots = shared_.exchange.first();
        mine.each([&](const tile& scores, int tile_index) {
            const float max_score = row_max(self, scores);
            put(self, slots.scores, tile_index, encoded_score(max_score));
            put(self, slots.tokens, tile_index,
                tile_index * Row::tile_columns + first_column_of(self, scores, max_score));
        });
        shared_.exchange.all_reduce(self);
    }

    IMBREX_KERNEL sample_result draw_from_full_row(const warp& self, warp_tiles& mine, const scored_token& greedy) {
        const sample_threshold threshold = with_min_p(sample_threshold{}, row_.options(), greedy.score);
        const gumbel_max gumbel = gumbel_max::of(row_.options(), greedy.score, threshold);
        // The race value of the most likely token is a lower bound for the winner.
        scored_token winner{gumbel(greedy.token, greedy.score), all_tokens};
        mine.each([&](tile& bounds, int tile_index) {
            const int first = tile_index * Row::tile_columns;
            map_columns(self, bounds, from_token<gumbel_max_bound>{gumbel_max_bound{gumbel}, first}, bounds);
            float bound = row_max(self, bounds);
            while (gumbel_max_bound::may_reach(bound, winner.score)) {
                const int column = first_column_of(self, bounds, bound);
                const int token = first + column;
                const float rate = gumbel(token, row_.score_of(token));
                if (rate > winner.score || (rate == winner.score && token < winner.token)) {
                    winner = scored_token{rate, token};
                }
                change(self, bounds, column, [](float) { return minus_infinity; });
                bound = row_max(self, bounds);
            }
        });
        exchange_slots& slots = shared_.exchange.second();
        const int slot = rank_ * Warps + self.index();
        put(self, slots.scores, slot, winner.token == all_tokens ? 0.0f : encoded_score(winner.score));
        put(self, slots.tokens, slot, winner.token);
        shared_.exchange.reduce_to_first(self, rank_);
        if (rank_ != 0 || self.index() != 0) return sample_result{1, 0, threshold};
        const exchange_slots& all = shared_.exchange.sum();
        hw::visit_vector(
            self, hw::use::read, source::current(), [](int, const int&) {}, all.tokens);
        scored_token best = scored_token::none();
        for (int first = 0; first < warps_per_row; first += 32) {
            best = argmax_of(self, best, warp_gather_from<32>(self, all.scores, [&](int number) {
                                 return first + number < warps_per_row
                                            ? scored_token{encoded_score(*all.scores.at(first + number)),
                                                           *all.tokens.at(first + number)}
                                            : scored_token::none();
                             }));
        }
        return sample_result{1, best.token, threshold};
    }

    IMBREX_KERNEL sample_result draw_from_candidates(const warp& self, warp_tiles& mine, const exchange_row& best,
                                                     float max_score, int candidates, bool has_top_k) {
        const float temperature = row_.options().temperature;
        constexpr float scale = static_cast<float>(histogram_bins) / 16;
        const float finer = has_top_k ? scale : scale / temperature;
        const uniform_bin widths{max_score, finer < 1e30f ? finer : 1e30f};
        if (self.index() == 0) {
            add_to_bins(self, shared_.bins[0], best, widths, count_one{});
            put(self, shared_.last_bin, 0, find_bin(self, shared_.bins, 0, static_cast<std::uint64_t>(candidates)).bin);
        }
        std::uint64_t sum = 0;
        if (!has_top_k) {
            const fixed_point_probability weight{relative_probability::of(max_score, temperature), sample_threshold{}};
            mine.each([&](const tile& scores, int) { sum += sum_of(self, scores, weight); });
        }
        sample_block_barrier<Warps>::sync(self, source::current());
        const int last_bin = get(self, shared_.last_bin, 0);
        if (last_bin == histogram_bins) return sample_result{};
        send_candidates(self, mine, widths, last_bin, sum);
        if (rank_ != 0) return sample_result{};
        sort_candidates(self);
        if (self.index() == 0) put(self, shared_.result, 0, draw_from_sorted(self, max_score, has_top_k));
        sample_block_barrier<Warps>::sync(self, source::current());
        return get(self, shared_.result, 0);
    }

    // Writes the tokens up to `last_bin`, compacted over the block's warps, and the warp's sum; a negative word marks
    // an overflow.
    IMBREX_KERNEL void send_candidates(const warp& self, warp_tiles& mine, const uniform_bin& widths, int last_bin,
                                       std::uint64_t sum) {
        auto found = warp_gather<32>(self, [](int) { return scored_token::none(); });
        int count = 0;
        mine.each([&](tile& scores, int tile_index) {
            float next = row_max(self, scores);
            while (widths.bin(next) <= last_bin && count < 32) {
                const int column = first_column_of(self, scores, next);
                warp_insert(self, found, count, scored_token{next, tile_index * Row::tile_columns + column});
                ++count;
                change(self, scores, column, [](float) { return minus_infinity; });
                next = row_max(self, scores);
            }
        });
        put(self, shared_.counts, self.index(), count);
        sample_block_barrier<Warps>::sync(self, source::current());
        const auto until = warp_inclusive_sum(
            self, warp_gather_from<Warps>(self, shared_.counts,
                                          [&](int number) -> int { return *shared_.counts.at(number); }));
        const int end = warp_broadcast(self, until, self.index());
        exchange_slots& slots = shared_.exchange.second();
        const bool fits = count < 32 && end <= slots_per_block;
        for (int i = 0; i < count && fits; ++i) {
            const scored_token one = warp_broadcast(self, found, i);
            const int slot = rank_ * slots_per_block + end - count + i;
            put(self, slots.scores, slot, encoded_score(one.score));
            put(self, slots.tokens, slot, one.token);
        }
        const int slot = rank_ * Warps + self.index();
        put(self, slots.words, slot, static_cast<int>(static_cast<std::uint32_t>(sum)));
        put(self, slots.words, slot_count / 2 + slot, fits ? static_cast<int>(sum >> 32) : -1);
        shared_.exchange.reduce_to_first(self, rank_);
    }

    IMBREX_KERNEL scored_token candidate_at(int slot) {
        const exchange_slots& all = shared_.exchange.sum();
        return scored_token{encoded_score(*all.scores.at(slot)), *all.tokens.at(slot)};
    }

    // Rank sort: the index of a token is the number of tokens before it, by score, then by token id.
    IMBREX_KERNEL void sort_candidates(const warp& self) {
        constexpr int lists = slot_count / 32;
        const exchange_slots& all = shared_.exchange.sum();
        hw::visit_vector(
            self, hw::use::read, source::current(), [](int, const int&) {}, all.tokens);
        hw::lane_values<scored_token, 32> of_all[lists];
        for (int i = 0; i < lists; ++i) {
            of_all[i] =
                warp_gather_from<32>(self, all.scores, [&](int number) { return candidate_at(32 * i + number); });
        }
        const int first = 32 * (self.index() % lists);
        const auto own =
            warp_gather_from<32>(self, all.scores, [&](int number) { return candidate_at(first + number); });
        for (int i = self.index() / lists; i < 32; i += Warps / lists) {
            const scored_token one = warp_broadcast(self, own, i);
            if (one.score == minus_infinity) break;
            int before = 0;
            for (int j = 0; j < lists; ++j) {
                before += warp_count_if(self, of_all[j], [=](const scored_token& other) {
                    return other.score > one.score || (other.score == one.score && other.token < one.token);
                });
            }
            put(self, shared_.sorted, before, one);
        }
        sample_block_barrier<Warps>::sync(self, source::current());
    }

    // Called by one warp of block 0: thresholds and the draw.
    IMBREX_KERNEL sample_result draw_from_sorted(const warp& self, float max_score, bool has_top_k) {
        const sample_options& options = row_.options();
        const auto& words = shared_.exchange.sum().words;
        const auto too_many = warp_gather_from<32>(self, words, [&](int number) {
            int any = 0;
            for (int i = slot_count / 2; i < slot_count; i += 32) any |= *words.at(i + number);
            return any;
        });
        if (warp_count_if(self, too_many, [](int word) { return word < 0; }) > 0) return sample_result{};
        sample_threshold threshold;
        int kept = slot_count;
        if (has_top_k) {
            kept = options.top_k;
            threshold = threshold_at(self, threshold, kept - 1, slot_count);
        }
        if (options.top_p < 1) {
            const fixed_point_probability weight{relative_probability::of(max_score, options.temperature), threshold};
            const std::uint64_t sum = has_top_k ? sum_of_sorted(self, weight, kept) : sum_of_row(self);
            const int last = reached_at(self, weight, kept, top_p_target(sum, options.top_p));
            if (last < kept) {
                threshold = threshold_at(self, threshold, last, kept);
                kept = last + 1;
            } else if (!has_top_k) {
                return sample_result{};
            }
        }
        threshold = with_min_p(threshold, options, max_score);
        const gumbel_max gumbel = gumbel_max::of(options, max_score, threshold);
        scored_token winner = scored_token::none();
        for (int first = 0; first < kept; first += 32) {
            winner = argmax_of(self, winner, warp_gather_from<32>(self, shared_.sorted, [&](int number) {
                                   const scored_token one = *shared_.sorted.at(first + number);
                                   return one.score > minus_infinity
                                              ? scored_token{gumbel(one.token, one.score), one.token}
                                              : scored_token::none();
                               }));
        }
        return sample_result{1, winner.token, threshold};
    }

    // The threshold after sorted token `number`, among `count` tokens that `within` keeps.
    IMBREX_KERNEL sample_threshold threshold_at(const warp& self, const sample_threshold& within, int number,
                                                int count) const {
        const scored_token last = get(self, shared_.sorted, number);
        const bool more = number + 1 < count && get(self, shared_.sorted, number + 1).score == last.score;
        return sample_threshold{last.score, more                             ? last.token
                                            : last.score == within.min_score ? within.last_token
                                                                             : all_tokens};
    }

    IMBREX_KERNEL auto prefix_sums_of(const warp& self, const fixed_point_probability& weight, int first) const {
        return warp_inclusive_sum(self, warp_gather_from<32>(self, shared_.sorted, [&](int number) {
                                      const scored_token one = *shared_.sorted.at(first + number);
                                      return one.score > minus_infinity ? weight(one.token, one.score)
                                                                        : std::uint64_t{0};
                                  }));
    }
    IMBREX_KERNEL std::uint64_t sum_of_sorted(const warp& self, const fixed_point_probability& weight,
                                              int count) const {
        std::uint64_t sum = 0;
        for (int first = 0; first < count; first += 32)
            sum += warp_broadcast(self, prefix_sums_of(self, weight, first), 31);
        return sum;
    }
    // Index of the sorted token at which the prefix sum reaches the target; `count` if it never does.
    IMBREX_KERNEL int reached_at(const warp& self, const fixed_point_probability& weight, int count,
                                 std::uint64_t target) const {
        std::uint64_t before = 0;
        for (int first = 0; first < count; first += 32) {
            const auto sums = prefix_sums_of(self, weight, first);
            const int less = warp_count_if(self, sums, [=](std::uint64_t sum) { return before + sum < target; });
            if (less < 32) return first + less;
            before += warp_broadcast(self, sums, 31);
        }
        return count;
    }
    IMBREX_KERNEL std::uint64_t sum_of_row(const warp& self) {
        const auto& words = shared_.exchange.sum().words;
        const auto sums = warp_gather_from<32>(self, words, [&](int number) {
            std::uint64_t sum = 0;
            for (int i = number; i < slot_count / 2; i += 32) {
                const auto low = static_cast<std::uint32_t>(*words.at(i));
                sum +=
                    static_cast<std::uint64_t>(static_cast<std::uint32_t>(*words.at(slot_count / 2 + i))) << 32 | low;
            }
            return sum;
        });
        return warp_broadcast(self, warp_inclusive_sum(self, sums), 31);
    }

    // The largest race value; the lowest token of equals.
    static IMBREX_KERNEL scored_token argmax_of(const warp& self, const scored_token& one,
                                                const hw::lane_values<scored_token, 32>& others) {
        const float rate =
            warp_max(self, others, [](const scored_token& other) { return other.score > 0 ? other.score : 0.0f; });
        if (rate == 0 || rate < one.score) return one;
        // Token ids below 2^20 are exact in float.
        const float distance = warp_max(self, others, [=](const scored_token& other) {
            return other.score == rate ? static_cast<float>(max_vocab_size - other.token) : 0.0f;
        });
        const int token = max_vocab_size - static_cast<int>(distance);
        return rate > one.score || token < one.token ? scored_token{rate, token} : one;
    }

    const Row& row_;
    shared_cooperative<Warps, ClusterSize>& shared_;
    int rank_;
};

}  // namespace imbrex::detail
