// Which sequence a new token belongs to, its position, and its place in the pages. All of it is read when the kernel runs, so that
// a launch in a CUDA graph can be replayed with other lengths and tables.
//
//     key_lengths[i] = 21, 3 new tokens, pages of 16 rows, table of sequence i | 5 | 2 | 7 |
//
//     new token     0        1        2
//     position      18       19       20          as many as there are, less the new ones, and on
//     page, row     2, 2     2, 3     2, 4
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/known_divisor.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/ops/warp/look_up.hpp>

#include <cstdint>

namespace imbrex {

// Where a new token goes.
struct appended_token {
    bool exists;
    int position;
    int page;
    int page_row;

    // Where it comes from: member of the batch and row of the new keys.
    struct origin {
        int batch;
        int row;
    };
};

struct appended_tokens {
    const int* query_starts;  // of sequences that are packed, or null
    const int* key_lengths;
    const int* table;
    int sequences;
    known_divisor tokens;  // of each sequence, if they are not packed
    int pages_per_sequence;
    known_divisor page_rows;
    int pages;

    IMBREX_FN bool packed() const { return query_starts != nullptr; }

    // Token `number`: a row of packed ones, or counted through sequence after sequence.
    IMBREX_FN appended_token::origin origin_of(int number) const {
        if (packed()) return appended_token::origin{0, number};
        const int sequence = tokens.quotient(number);
        return appended_token::origin{sequence, number - sequence * tokens.value};
    }
    // One without a sequence, a position or a page does not exist.
    IMBREX_KERNEL appended_token at(const warp& self, int number, source here = source::current()) const {
        const int sequence = packed() ? sequence_of(self, number, here) : tokens.quotient(number);
        const int first = packed() ? query_starts[sequence] : sequence * tokens.value;
        const int end = packed() ? query_starts[sequence + 1] : first + tokens.value;
        const int position = key_lengths[sequence] - (end - number);
        const int entry = page_rows.quotient(position > 0 ? position : 0);
        const bool inside = number >= first && number < end && position >= 0 && entry < pages_per_sequence;
        const int page = inside ? table[static_cast<std::int64_t>(sequence) * pages_per_sequence + entry] : -1;
        return {page >= 0 && page < pages, position, page, position - entry * page_rows.value};
    }

  private:
    // The last sequence that begins at this row or before it, or the first. The lanes look at 32 of those that are left at once.
    IMBREX_KERNEL int sequence_of(const warp& self, int row, source here) const {
        constexpr int at_once = warp::threads, never = 2147483647;
        int first = 0;
        for (int left = sequences; left > 1;) {
            const int step = (left + at_once - 1) / at_once;
            const auto starts = look_up<at_once>(
                self, [&](int i) { return i * step < left ? query_starts[first + i * step] : never; }, here);
            const int begun = count_of(
                self, starts, [&](int start) { return start <= row; }, here);
            const int passed = begun > 0 ? (begun - 1) * step : 0;
            first += passed;
            left = left - passed < step ? left - passed : step;
        }
        return first;
    }
};

}  // namespace imbrex
