// Maps a new token to its sequence, its position and its slot in the paged KV cache. Everything is read when the kernel
// runs, so that a captured CUDA graph can be replayed with other lengths and block tables.
//
//     seqused_k[i] = 21, 3 new tokens, pages of 16 rows, block table of sequence i: | 5 | 2 | 7 |
//
//     new token     0        1        2
//     position      18       19       20          seqused_k - new tokens + index
//     page, row     2, 2     2, 3     2, 4
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/warp/gather.hpp>

#include <cstdint>

namespace imbrex {

// Position and slot of a new token.
struct appended_token {
    bool exists;
    int position;
    int page;
    int page_row;

    // Batch index and row in the new keys.
    struct origin {
        int batch;
        int row;
    };
};

struct appended_tokens {
    const int* cu_seqlens_q;  // varlen, or null
    const int* seqused_k;
    const int* block_table;
    int sequences;
    fast_divmod tokens;  // per sequence, if not varlen
    int max_blocks_per_seq;
    fast_divmod page_size;
    int pages;

    IMBREX_FN bool is_varlen() const { return cu_seqlens_q != nullptr; }

    // Token `number`: a varlen row, or counted over all sequences.
    IMBREX_FN appended_token::origin origin_of(int number) const {
        if (is_varlen()) return appended_token::origin{0, number};
        const int sequence = tokens.quotient(number);
        return appended_token::origin{sequence, number - sequence * tokens.value};
    }
    // A token without a sequence, a position or a page does not exist.
    IMBREX_KERNEL appended_token at(const warp& self, int number, source here = source::current()) const {
        const int sequence = is_varlen() ? sequence_of(self, number, here) : tokens.quotient(number);
        const int first = is_varlen() ? read_element(cu_seqlens_q, sequence) : sequence * tokens.value;
        const int end = is_varlen() ? read_element(cu_seqlens_q, sequence + 1) : first + tokens.value;
        const int position = read_element(seqused_k, sequence) - (end - number);
        const int entry = page_size.quotient(position > 0 ? position : 0);
        const bool inside = number >= first && number < end && position >= 0 && entry < max_blocks_per_seq;
        const int page =
            inside ? read_element(block_table, static_cast<std::int64_t>(sequence) * max_blocks_per_seq + entry) : -1;
        return {page >= 0 && page < pages, position, page, position - entry * page_size.value};
    }

  private:
    // The last sequence that begins at or before this row: a 32-way search, one candidate per lane.
    IMBREX_KERNEL int sequence_of(const warp& self, int row, source here) const {
        constexpr int at_once = warp::threads, never = 2147483647;
        int first = 0;
        for (int left = sequences; left > 1;) {
            const int step = ceil_div(left, at_once);
            const auto starts = warp_gather<at_once>(
                self, [&](int i) { return i * step < left ? read_element(cu_seqlens_q, first + i * step) : never; },
                here);
            const int begun = warp_count_if(
                self, starts, [&](int start) { return start <= row; }, here);
            const int passed = begun > 0 ? (begun - 1) * step : 0;
            first += passed;
            left = left - passed < step ? left - passed : step;
        }
        return first;
    }
};

}  // namespace imbrex
