// Sampling of a row by several blocks, for few rows: one multiprocessor would read a row slower than all of them do the rest of a
// step. Each warp keeps its part of the row in registers, and blocks tell one another little, at most twice
// (kernels/sample/boards.hpp).
//
//   1. the largest score of each piece of 1024 tokens, told to all: the largest of all is the token at temperature 0
//   2. without top_k and top_p: the draw, each warp among its tokens
//      with them: the largest scores of pieces say below which score nothing is among the k best, since there are k pieces with a better
//      one. The few tokens above it are told to the first block, which sorts them and finds cuts and token.
//
// That is enough unless top_k is large, or top_p asks for more than about as many tokens as are looked at: then nothing is settled, and the
// first block samples the row alone.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/boards.hpp>
#include <imbrex/kernels/sample/cut.hpp>
#include <imbrex/kernels/sample/draw.hpp>
#include <imbrex/kernels/sample/likeliest.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/kernels/sample/row.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/chunk_scan.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

struct sample_outcome {
    int settled;  // whether there is one
    int token;
    sample_cut cut;
};

template <int Warps, int Sharers>
struct shared_together {
    shared_boards<Warps, Sharers> boards;
    shared_vector<std::uint64_t, sample_bins> bins[1];
    shared_vector<int, 1> last_bin;
    shared_vector<int, Warps> counts;
    shared_vector<scored_token, board_places::count> sorted;
    shared_vector<sample_outcome, 1> outcome;

    template <class Block>
    IMBREX_KERNEL void init(const Block& block) {
        boards.init(block);
        fill_by(block, bins[0], [](int) { return std::uint64_t{0}; });
        fill_by(block, sorted, [](int) { return scored_token::none(); });
    }
};

template <class Row, int Warps, int Sharers>
class sampling_together {
    static constexpr int pieces_of_warp = 2;
    static constexpr int parts = Warps * Sharers;  // of a row, each of a warp
    static constexpr int places = board_places::count;
    static constexpr int places_of_block = places / Sharers;  // for its tokens among the best
    static constexpr int most_wanted = 64;                    // pieces whose largest scores are looked for
    static_assert(parts * pieces_of_warp <= places && 2 * parts <= places && Warps % (places / 32) == 0,
                  "imbrex: the warps that share a row have places on a board");

  public:
    // Longer rows are not for this.
    static constexpr int most_columns = parts * pieces_of_warp * Row::columns_at_once;

    IMBREX_KERNEL sampling_together(const Row& row, shared_together<Warps, Sharers>& shared, int rank)
        : row_(row), shared_(shared), rank_(rank) {}

    // Every warp of every block takes part. It is the outcome in the first block; others know as much as they have to.
    IMBREX_KERNEL sample_outcome find(const warp& self) {
        const sample_options& options = row_.options();
        part mine(row_, self, rank_);
        tell_largest(self, mine);
        board_row best;
        load_scores_of(self, best, shared_.boards.sum());
        const float most = largest(self, best);
        const int piece = first_column_of(self, best, most);
        const int token = most > nothing_is_less ? get(self, shared_.boards.sum().tokens, piece) : 0;
        // Not so if nothing may be drawn, or if the temperature is no number.
        if (!(options.temperature > 0 && most > nothing_is_less)) {
            return sample_outcome{1, token, sample_cut{most, token}};
        }
        const bool has_top_k = options.top_k > 0 && options.top_k < row_.vocabulary();
        const int wanted = has_top_k ? options.top_k : most_wanted;
        if (wanted > most_wanted) return sample_outcome{};
        const bool from_all = !has_top_k && !(options.top_p < 1);
        sample_outcome found = from_all ? draw_from_all(self, mine, scored_token{most, token})
                                        : draw_from_best(self, mine, best, most, wanted, has_top_k);
        // None is kept by options without a meaning.
        if (found.token < 0) found.token = token;
        return found;
    }

  private:
    using tile = typename Row::tile;

    // A warp's part of a row: pieces dealt to blocks and then to warps in turn, since neighbours are often likely together.
    struct part {
        tile scores[pieces_of_warp];
        int first, end;

        IMBREX_KERNEL part(const Row& row, const warp& self, int rank)
            : first(self.index() * Sharers + rank), end((row.vocabulary() - 1) / Row::columns_at_once + 1) {
            const int tokens[] = {first * Row::columns_at_once, (first + parts) * Row::columns_at_once};
            // All is asked for before any of it is waited for.
            typename Row::logits_tile logits[pieces_of_warp];
            row.load_logits(self, logits[0], tokens[0]);
            row.load_logits(self, logits[1], tokens[1]);
            row.to_scores(self, scores[0], logits[0], tokens[0]);
            row.to_scores(self, scores[1], logits[1], tokens[1]);
            row.change_scores(self, scores[0], tokens[0]);
            row.change_scores(self, scores[1], tokens[1]);
        }
        // function(scores, number of the piece) of those that there are
        template <class Function>
        IMBREX_KERNEL void each(Function&& function) {
            if (first < end) function(scores[0], first);
            if (first + parts < end) function(scores[1], first + parts);
        }
    };

    IMBREX_KERNEL void tell_largest(const warp& self, part& mine) {
        board_places& board = shared_.boards.first();
        mine.each([&](const tile& scores, int piece) {
            const float most = largest(self, scores);
            put(self, board.scores, piece, score_on_board(most));
            put(self, board.tokens, piece, piece * Row::columns_at_once + first_column_of(self, scores, most));
        });
        shared_.boards.tell_all(self);
    }

    IMBREX_KERNEL sample_outcome draw_from_all(const warp& self, part& mine, const scored_token& most) {
        const sample_cut cut = with_min_p(sample_cut{}, row_.options(), most.score);
        const race waiting = race::of(row_.options(), most.score, cut);
        // Who is later than the likeliest one need not be known.
        scored_token soonest{waiting(most.token, most.score), all_tokens};
        mine.each([&](tile& bounds, int piece) {
            const int first = piece * Row::columns_at_once;
            map_columns(self, bounds, from_token<race_bound>{race_bound{waiting}, first}, bounds);
            float bound = largest(self, bounds);
            while (race_bound::may_reach(bound, soonest.score)) {
                const int column = first_column_of(self, bounds, bound);
                const int token = first + column;
                const float rate = waiting(token, row_.score_of(token));
                if (rate > soonest.score || (rate == soonest.score && token < soonest.token)) {
                    soonest = scored_token{rate, token};
                }
                change(self, bounds, column, [](float) { return nothing_is_less; });
                bound = largest(self, bounds);
            }
        });
        board_places& board = shared_.boards.second();
        const int place = rank_ * Warps + self.index();
        put(self, board.scores, place, soonest.token == all_tokens ? 0.0f : score_on_board(soonest.score));
        put(self, board.tokens, place, soonest.token);
        shared_.boards.tell_first(self, rank_);
        if (rank_ != 0 || self.index() != 0) return sample_outcome{1, 0, cut};
        const board_places& all = shared_.boards.sum();
        hw::visit_vector(
            self, hw::use::read, source::current(), [](int, const int&) {}, all.tokens);
        scored_token best = scored_token::none();
        for (int first = 0; first < parts; first += 32) {
            best = sooner_of(self, best, look_up_in<32>(self, all.scores, [&](int number) {
                                 return first + number < parts
                                            ? scored_token{score_on_board(*all.scores.at(first + number)),
                                                           *all.tokens.at(first + number)}
                                            : scored_token::none();
                             }));
        }
        return sample_outcome{1, best.token, cut};
    }

    IMBREX_KERNEL sample_outcome draw_from_best(const warp& self, part& mine, const board_row& best, float most,
                                                int wanted, bool has_top_k) {
        const float temperature = row_.options().temperature;
        constexpr float scale = static_cast<float>(sample_bins) / 16;
        const float finer = has_top_k ? scale : scale / temperature;
        const width_bin widths{most, finer < 1e30f ? finer : 1e30f};
        if (self.index() == 0) {
            add_to_bins(self, shared_.bins[0], best, widths, one_each{});
            put(self, shared_.last_bin, 0, find_bin(self, shared_.bins, 0, static_cast<std::uint64_t>(wanted)).bin);
        }
        std::uint64_t sum = 0;
        if (!has_top_k) {
            const counted_weight weight{relative_weight::of(most, temperature), sample_cut{}};
            mine.each([&](const tile& scores, int) { sum += sum_of(self, scores, weight); });
        }
        sample_meeting<Warps>::sync(self, source::current());
        const int last_bin = get(self, shared_.last_bin, 0);
        if (last_bin == sample_bins) return sample_outcome{};
        tell_best(self, mine, widths, last_bin, sum);
        if (rank_ != 0) return sample_outcome{};
        sort_best(self);
        if (self.index() == 0) put(self, shared_.outcome, 0, draw_from_sorted(self, most, has_top_k));
        sample_meeting<Warps>::sync(self, source::current());
        return get(self, shared_.outcome, 0);
    }

    // The tokens up to a bin, those of all warps of the block side by side, and the warp's sum; below 0 where tokens are too many.
    IMBREX_KERNEL void tell_best(const warp& self, part& mine, const width_bin& widths, int last_bin,
                                 std::uint64_t sum) {
        auto found = look_up<32>(self, [](int) { return scored_token::none(); });
        int count = 0;
        mine.each([&](tile& scores, int piece) {
            float next = largest(self, scores);
            while (widths.bin(next) <= last_bin && count < 32) {
                const int column = first_column_of(self, scores, next);
                insert(self, found, count, scored_token{next, piece * Row::columns_at_once + column});
                ++count;
                change(self, scores, column, [](float) { return nothing_is_less; });
                next = largest(self, scores);
            }
        });
        put(self, shared_.counts, self.index(), count);
        sample_meeting<Warps>::sync(self, source::current());
        const auto until = running_sums(
            self, look_up_in<Warps>(self, shared_.counts, [&](int number) { return *shared_.counts.at(number); }));
        const int end = entry(self, until, self.index());
        board_places& board = shared_.boards.second();
        const bool fits = count < 32 && end <= places_of_block;
        for (int i = 0; i < count && fits; ++i) {
            const scored_token one = entry(self, found, i);
            const int place = rank_ * places_of_block + end - count + i;
            put(self, board.scores, place, score_on_board(one.score));
            put(self, board.tokens, place, one.token);
        }
        const int place = rank_ * Warps + self.index();
        put(self, board.words, place, static_cast<int>(static_cast<std::uint32_t>(sum)));
        put(self, board.words, places / 2 + place, fits ? static_cast<int>(sum >> 32) : -1);
        shared_.boards.tell_first(self, rank_);
    }

    IMBREX_KERNEL scored_token told(int place) {
        const board_places& all = shared_.boards.sum();
        return scored_token{score_on_board(*all.scores.at(place)), *all.tokens.at(place)};
    }

    // Each to the place that follows from how many come before it: by scores, then by tokens.
    IMBREX_KERNEL void sort_best(const warp& self) {
        constexpr int lists = places / 32;
        const board_places& all = shared_.boards.sum();
        hw::visit_vector(
            self, hw::use::read, source::current(), [](int, const int&) {}, all.tokens);
        hw::lane_values<scored_token, 32> of_all[lists];
        for (int i = 0; i < lists; ++i) {
            of_all[i] = look_up_in<32>(self, all.scores, [&](int number) { return told(32 * i + number); });
        }
        const int first = 32 * (self.index() % lists);
        const auto own = look_up_in<32>(self, all.scores, [&](int number) { return told(first + number); });
        for (int i = self.index() / lists; i < 32; i += Warps / lists) {
            const scored_token one = entry(self, own, i);
            if (one.score == nothing_is_less) break;
            int before = 0;
            for (int j = 0; j < lists; ++j) {
                before += count_of(self, of_all[j], [=](const scored_token& other) {
                    return other.score > one.score || (other.score == one.score && other.token < one.token);
                });
            }
            put(self, shared_.sorted, before, one);
        }
        sample_meeting<Warps>::sync(self, source::current());
    }

    // One warp of the first block: cuts and the draw.
    IMBREX_KERNEL sample_outcome draw_from_sorted(const warp& self, float most, bool has_top_k) {
        const sample_options& options = row_.options();
        const auto& words = shared_.boards.sum().words;
        const auto too_many = look_up_in<32>(self, words, [&](int number) {
            int any = 0;
            for (int i = places / 2; i < places; i += 32) any |= *words.at(i + number);
            return any;
        });
        if (count_of(self, too_many, [](int word) { return word < 0; }) > 0) return sample_outcome{};
        sample_cut cut;
        int kept = places;
        if (has_top_k) {
            kept = options.top_k;
            cut = cut_at(self, cut, kept - 1, places);
        }
        if (options.top_p < 1) {
            const counted_weight weight{relative_weight::of(most, options.temperature), cut};
            const std::uint64_t sum = has_top_k ? sum_of_sorted(self, weight, kept) : sum_of_row(self);
            const int last = reached_at(self, weight, kept, enough_of(sum, options.top_p));
            if (last < kept) {
                cut = cut_at(self, cut, last, kept);
                kept = last + 1;
            } else if (!has_top_k) {
                return sample_outcome{};
            }
        }
        cut = with_min_p(cut, options, most);
        const race waiting = race::of(options, most, cut);
        scored_token soonest = scored_token::none();
        for (int first = 0; first < kept; first += 32) {
            soonest = sooner_of(self, soonest, look_up_in<32>(self, shared_.sorted, [&](int number) {
                                    const scored_token one = *shared_.sorted.at(first + number);
                                    return one.score > nothing_is_less
                                               ? scored_token{waiting(one.token, one.score), one.token}
                                               : scored_token::none();
                                }));
        }
        return sample_outcome{1, soonest.token, cut};
    }

    // The cut behind the sorted token of this number, among `count` of them that are within a cut.
    IMBREX_KERNEL sample_cut cut_at(const warp& self, const sample_cut& within, int number, int count) const {
        const scored_token last = get(self, shared_.sorted, number);
        const bool more = number + 1 < count && get(self, shared_.sorted, number + 1).score == last.score;
        return sample_cut{last.score, more ? last.token : last.score == within.least ? within.last : all_tokens};
    }

    IMBREX_KERNEL auto weights_of(const warp& self, const counted_weight& weight, int first) const {
        return running_sums(self, look_up_in<32>(self, shared_.sorted, [&](int number) {
                                const scored_token one = *shared_.sorted.at(first + number);
                                return one.score > nothing_is_less ? weight(one.token, one.score) : std::uint64_t{0};
                            }));
    }
    IMBREX_KERNEL std::uint64_t sum_of_sorted(const warp& self, const counted_weight& weight, int count) const {
        std::uint64_t sum = 0;
        for (int first = 0; first < count; first += 32) sum += entry(self, weights_of(self, weight, first), 31);
        return sum;
    }
    // The number with which the weights of sorted tokens are enough together; `count`, if they never are.
    IMBREX_KERNEL int reached_at(const warp& self, const counted_weight& weight, int count,
                                 std::uint64_t enough) const {
        std::uint64_t before = 0;
        for (int first = 0; first < count; first += 32) {
            const auto sums = weights_of(self, weight, first);
            const int less = count_of(self, sums, [=](std::uint64_t sum) { return before + sum < enough; });
            if (less < 32) return first + less;
            before += entry(self, sums, 31);
        }
        return count;
    }
    IMBREX_KERNEL std::uint64_t sum_of_row(const warp& self) {
        const auto& words = shared_.boards.sum().words;
        const auto sums = look_up_in<32>(self, words, [&](int number) {
            std::uint64_t sum = 0;
            for (int i = number; i < places / 2; i += 32) {
                const auto low = static_cast<std::uint32_t>(*words.at(i));
                sum += static_cast<std::uint64_t>(static_cast<std::uint32_t>(*words.at(places / 2 + i))) << 32 | low;
            }
            return sum;
        });
        return entry(self, running_sums(self, sums), 31);
    }

    // The one with the highest rate; of equals, that of the lowest token.
    static IMBREX_KERNEL scored_token sooner_of(const warp& self, const scored_token& one,
                                                const hw::lane_values<scored_token, 32>& others) {
        const float rate =
            largest_of(self, others, [](const scored_token& other) { return other.score > 0 ? other.score : 0.0f; });
        if (rate == 0 || rate < one.score) return one;
        // Tokens are small enough that floats can say them.
        const float distance = largest_of(self, others, [=](const scored_token& other) {
            return other.score == rate ? static_cast<float>(most_vocabulary - other.token) : 0.0f;
        });
        const int token = most_vocabulary - static_cast<int>(distance);
        return rate > one.score || token < one.token ? scored_token{rate, token} : one;
    }

    const Row& row_;
    shared_together<Warps, Sharers>& shared_;
    int rank_;
};

}  // namespace imbrex::detail
