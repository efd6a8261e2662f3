// A row of logits as one warp of a block goes over it: a part of the columns, piece after piece, as scores. Tokens with a bias or a
// penalty are changed on the way, each time the row is read: they are few, and nothing has to be kept of them in between. The
// largest score of each piece is kept: most pieces of a row have nothing that could be drawn, and are not read again.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/elementwise/rows.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/chunk_scan.hpp>
#include <imbrex/ops/register/chunks.hpp>
#include <imbrex/tile/chunk_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class T>
struct sample_arguments {
    row_places<const T> logits;
    const sample_options* options;
    const token_change* changes;  // null: none
    const int* change_starts;
    int* tokens;
    float* logprobs;        // null: not asked for
    int* likeliest_tokens;  // [row, likeliest]
    float* likeliest_logprobs;
    sample_cut* cuts;  // null: not asked for
    int rows, vocabulary, likeliest;

    IMBREX_FN bool wants_logprobs() const { return logprobs != nullptr || likeliest > 0; }
};

namespace detail {

inline constexpr int most_vocabulary = 1 << 20;  // so that 2^40 times as many are still a number of 64 bits

template <class T, row_chunks Known, int Warps>
class sample_row {
  public:
    static constexpr int columns_at_once = 1024;
    using tile = chunk_tile<float, 1, columns_at_once>;
    using largest_of_pieces = shared_vector<float, most_vocabulary / columns_at_once>;

    // No warp has a part of it.
    IMBREX_KERNEL sample_row(const sample_arguments<T>& args, int row, largest_of_pieces& largest)
        : args_(args), row_(row), options_(args.options[row]), largest_(largest) {}
    IMBREX_KERNEL sample_row(const sample_arguments<T>& args, int row, int warp_number, largest_of_pieces& largest)
        : sample_row(args, row, largest) {
        const int pieces = (args.vocabulary - 1) / columns_at_once + 1;
        const int each = (pieces - 1) / Warps + 1;
        first_ = least(warp_number * each, pieces) * columns_at_once;
        end_ = least(first_ + each * columns_at_once, args.vocabulary);
        if (args.changes == nullptr) return;
        first_change_ = change_at(args.change_starts[row], args.change_starts[row + 1], first_);
        last_change_ = change_at(first_change_, args.change_starts[row + 1], end_);
    }

    IMBREX_KERNEL const sample_options& options() const { return options_; }
    IMBREX_KERNEL int vocabulary() const { return args_.vocabulary; }

    // The piece that begins with a token, in parts, for who has several under way: its logits, and scores of them with bias and penalties.
    // Behind the row's end there are none.
    using logits_tile = chunk_tile<T, 1, columns_at_once>;
    IMBREX_KERNEL void load_logits(const warp& self, logits_tile& logits, int first) const {
        load_rows_from<Known>(self, logits, places_of_tile<const T>{args_.logits, row_, args_.rows, first},
                              args_.vocabulary - first);
    }
    IMBREX_KERNEL void to_scores(const warp& self, tile& scores, const logits_tile& logits, int first) const {
        map_columns(self, scores, score_in_row{args_.vocabulary - first}, logits);
    }
    IMBREX_KERNEL void change_scores(const warp& self, tile& scores, int first) const {
        if (args_.changes == nullptr) return;
        const int end = args_.change_starts[row_ + 1];
        apply_changes(self, scores, first, change_at(args_.change_starts[row_], end, first), end);
    }

    // Of one token alone.
    IMBREX_KERNEL float score_of(int token) const {
        const float score = score_of_logit(convert<float>(*args_.logits.at(row_, token)));
        if (args_.changes == nullptr) return score;
        const int end = args_.change_starts[row_ + 1], at = change_at(args_.change_starts[row_], end, token);
        if (at == end || args_.changes[at].token != token) return score;
        // Read again: few tokens come here, and what is kept for them takes registers from all the others.
        return changed_score{args_.options[row_], args_.changes[at]}(score);
    }

    // function(scores, first token of them) of every piece, with bias and penalties.
    template <class Function>
    IMBREX_KERNEL void each_piece(const warp& self, Function&& function) const {
        each_piece_of<true>(
            self, [](int) { return true; }, function);
    }
    // And of those that a largest score makes worth reading; the scores as they were found before.
    template <class Needed, class Function>
    IMBREX_KERNEL void each_piece_if(const warp& self, Needed&& needed, Function&& function) const {
        each_piece_of<true>(
            self, [&](int first) { return needed(largest_in(self, first)); }, function);
    }
    // The same of logits as they are.
    template <class Function>
    IMBREX_KERNEL void each_piece_unchanged(const warp& self, Function&& function) const {
        each_piece_of<false>(
            self, [](int) { return true; }, function);
    }
    template <class Needed, class Function>
    IMBREX_KERNEL void each_piece_unchanged_if(const warp& self, Needed&& needed, Function&& function) const {
        each_piece_of<false>(
            self, [&](int first) { return needed(largest_in(self, first)); }, function);
    }

    // Remembers, for this warp, the largest score of the piece that begins with a token.
    IMBREX_KERNEL void remember_largest(const warp& self, int first, float score,
                                        source here = source::current()) const {
        put(self, largest_, first / columns_at_once, score, here);
    }

  private:
    template <bool Changed, class Needed, class Function>
    IMBREX_KERNEL void each_piece_of(const warp& self, Needed&& needed, Function&& function) const {
        int next = first_change_;
        for (int first = first_; first < end_; first += columns_at_once) {
            if (!needed(first)) continue;
            tile scores;
            logits_tile logits;
            load_logits(self, logits, first);
            to_scores(self, scores, logits, first);
            if constexpr (Changed) next = apply_changes(self, scores, first, next, last_change_);
            function(scores, first);
        }
    }
    // Those from `next` on that are in a piece; returns the first behind it.
    IMBREX_KERNEL int apply_changes(const warp& self, tile& scores, int first, int next, int end) const {
        for (; next < end; ++next) {
            const token_change one = args_.changes[next];
            if (one.token >= first + columns_at_once) break;
            change(self, scores, one.token - first, changed_score{options_, one});
        }
        return next;
    }
    IMBREX_KERNEL float largest_in(const warp& self, int first, source here = source::current()) const {
        return get(self, largest_, first / columns_at_once, here);
    }
    // The first change from `first` on, before `end`, of this token or a later one.
    IMBREX_KERNEL int change_at(int first, int end, int token) const {
        while (first < end) {
            const int middle = first + (end - first) / 2;
            if (args_.changes[middle].token < token) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        return first;
    }
    static IMBREX_KERNEL int least(int a, int b) { return a < b ? a : b; }

    const sample_arguments<T>& args_;
    int row_;
    sample_options options_;
    largest_of_pieces& largest_;
    int first_ = 0, end_ = 0;  // tokens of this warp
    int first_change_ = 0, last_change_ = 0;
};

}  // namespace detail

}  // namespace imbrex
