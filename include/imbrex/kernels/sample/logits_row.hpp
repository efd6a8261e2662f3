// A row of logits as one warp traverses it: a contiguous share of the columns, tile by tile, converted to scores. Tokens
// that the mask of the row does not have get -infinity as they are read. Bias and penalties are applied on every pass: adjusted tokens are few, and no state is kept between passes. The maximum
// score of each tile is kept in shared memory: most tiles hold no token that could be drawn and are not read again.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex {

template <class T>
struct sample_arguments {
    row_accessor<const T> logits;
    const sample_options* options;
    const logit_adjustment* adjustments;  // null: none
    const int* adjustment_offsets;
    const std::uint32_t* token_masks;  // null: none
    const int* token_mask_rows;
    int* tokens;
    float* logprobs;           // null: not requested
    int* top_logprobs_tokens;  // [rows, num_top_logprobs]
    float* top_logprobs;
    sample_threshold* thresholds;  // null: not requested
    int rows, vocab_size, num_top_logprobs;

    IMBREX_FN bool wants_logprobs() const { return logprobs != nullptr || num_top_logprobs > 0; }
    // The mask of a row, if there are any; null: every token may be drawn.
    IMBREX_FN const std::uint32_t* token_mask(int row) const {
        if (token_mask_rows[row] < 0) return nullptr;
        return token_masks + static_cast<std::int64_t>(token_mask_rows[row]) * detail::token_mask_words(vocab_size);
    }
};

namespace detail {

inline constexpr int max_vocab_size = 1 << 20;  // times 2^40 still fits 64 bits

// Masked: rows may have a token mask. Without one it would still cost registers.
template <class T, row_alignment Known, int Warps, bool Masked = false>
class logits_row {
  public:
    static constexpr int tile_columns = 1024;
    using tile = vector_row_tile<float, 1, tile_columns>;
    using tile_maxima = shared_vector<float, max_vocab_size / tile_columns>;

    // Without a share of the columns: for access by tile index.
    IMBREX_KERNEL logits_row(const sample_arguments<T>& args, int row, tile_maxima& maxima)
        : args_(args), row_(row), options_(args.options[row]), maxima_(maxima) {}
    IMBREX_KERNEL logits_row(const sample_arguments<T>& args, int row, int warp_number, tile_maxima& maxima)
        : logits_row(args, row, maxima) {
        const int tiles = (args.vocab_size - 1) / tile_columns + 1;
        const int each = (tiles - 1) / Warps + 1;
        first_ = min_of(warp_number * each, tiles) * tile_columns;
        end_ = min_of(first_ + each * tile_columns, args.vocab_size);
        if (args.adjustments == nullptr) return;
        first_adjustment_ = adjustment_at(args.adjustment_offsets[row], args.adjustment_offsets[row + 1], first_);
        last_adjustment_ = adjustment_at(first_adjustment_, args.adjustment_offsets[row + 1], end_);
    }

    IMBREX_KERNEL const sample_options& options() const { return options_; }
    IMBREX_KERNEL int vocab_size() const { return args_.vocab_size; }

    // The stages of reading the tile that starts at token `first`, for callers that keep several tiles in flight.
    // Columns past the end of the row get -infinity.
    using logits_tile = vector_row_tile<T, 1, tile_columns>;
    IMBREX_KERNEL void load_logits(const warp& self, logits_tile& logits, int first) const {
        load_rows_from<Known>(self, logits, row_pointers<const T>{args_.logits, row_, args_.rows, first},
                              args_.vocab_size - first);
    }
    IMBREX_KERNEL void to_scores(const warp& self, tile& scores, const logits_tile& logits, int first) const {
        map_columns(self, scores, score_in_row{args_.vocab_size - first}, logits);
    }
    IMBREX_KERNEL void mask_scores(const warp& self, tile& scores, int first) const {
        const std::uint32_t* const mask = args_.token_mask(row_);
        if (mask == nullptr) return;
        map_columns(self, scores,
                    masked_score{static_cast<unsigned>(args_.vocab_size - 1 - first) / 32, mask + first / 32}, scores);
    }
    IMBREX_KERNEL void adjust_scores(const warp& self, tile& scores, int first) const {
        if (args_.adjustments == nullptr) return;
        const int end = args_.adjustment_offsets[row_ + 1];
        apply_adjustments(self, scores, first, adjustment_at(args_.adjustment_offsets[row_], end, first), end);
    }

    // Score of a single token, and the same without bias and penalties.
    IMBREX_KERNEL float unadjusted_score_of(int token) const {
        if constexpr (Masked) {
            const std::uint32_t* const mask = args_.token_mask(row_);
            if (mask != nullptr && !is_in_mask(mask, token)) return minus_infinity;
        }
        return score_of_logit(convert<float>(*args_.logits.at(row_, token)));
    }
    IMBREX_KERNEL float score_of(int token) const {
        const float score = unadjusted_score_of(token);
        if (args_.adjustments == nullptr) return score;
        const int end = args_.adjustment_offsets[row_ + 1],
                  at = adjustment_at(args_.adjustment_offsets[row_], end, token);
        if (at == end || args_.adjustments[at].token != token) return score;
        // Options are reloaded: few tokens take this path, and keeping them would cost registers on every path.
        return adjusted_score{args_.options[row_], args_.adjustments[at]}(score);
    }

    // Calls function(scores, first token) for every tile, with bias and penalties applied.
    template <class Function>
    IMBREX_KERNEL void for_each_tile(const warp& self, Function&& function) const {
        visit_tiles<true>(
            self, [](int) { return true; }, function);
    }
    // Only tiles whose stored maximum satisfies `needed`.
    template <class Needed, class Function>
    IMBREX_KERNEL void for_each_tile_if(const warp& self, Needed&& needed, Function&& function) const {
        visit_tiles<true>(
            self, [&](int first) { return needed(tile_max_at(self, first)); }, function);
    }
    // The same without bias and penalties.
    template <class Function>
    IMBREX_KERNEL void for_each_unadjusted_tile(const warp& self, Function&& function) const {
        visit_tiles<false>(
            self, [](int) { return true; }, function);
    }
    template <class Needed, class Function>
    IMBREX_KERNEL void for_each_unadjusted_tile_if(const warp& self, Needed&& needed, Function&& function) const {
        visit_tiles<false>(
            self, [&](int first) { return needed(tile_max_at(self, first)); }, function);
    }

    // Stores the maximum score of the tile that starts at token `first`.
    IMBREX_KERNEL void store_tile_max(const warp& self, int first, float score, source here = source::current()) const {
        put(self, maxima_, first / tile_columns, score, here);
    }

  private:
    template <bool Adjusted, class Needed, class Function>
    IMBREX_KERNEL void visit_tiles(const warp& self, Needed&& needed, Function&& function) const {
        int next = first_adjustment_;
        for (int first = first_; first < end_; first += tile_columns) {
            if (!needed(first)) continue;
            tile scores;
            logits_tile logits;
            load_logits(self, logits, first);
            to_scores(self, scores, logits, first);
            if constexpr (Masked) mask_scores(self, scores, first);
            if constexpr (Adjusted) next = apply_adjustments(self, scores, first, next, last_adjustment_);
            function(scores, first);
        }
    }
    // Applies the adjustments from `next` on that fall into a tile; returns the first one past it.
    IMBREX_KERNEL int apply_adjustments(const warp& self, tile& scores, int first, int next, int end) const {
        for (; next < end; ++next) {
            const logit_adjustment one = args_.adjustments[next];
            if (one.token >= first + tile_columns) break;
            change(self, scores, one.token - first, adjusted_score{options_, one});
        }
        return next;
    }
    IMBREX_KERNEL float tile_max_at(const warp& self, int first, source here = source::current()) const {
        return get(self, maxima_, first / tile_columns, here);
    }
    // Binary search: the first adjustment in [first, end) whose token is not below `token`.
    IMBREX_KERNEL int adjustment_at(int first, int end, int token) const {
        while (first < end) {
            const int middle = first + (end - first) / 2;
            if (args_.adjustments[middle].token < token) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        return first;
    }
    static IMBREX_KERNEL int min_of(int a, int b) { return a < b ? a : b; }

    const sample_arguments<T>& args_;
    int row_;
    sample_options options_;
    tile_maxima& maxima_;
    int first_ = 0, end_ = 0;  // tokens of this warp
    int first_adjustment_ = 0, last_adjustment_ = 0;
};

}  // namespace detail

}  // namespace imbrex
