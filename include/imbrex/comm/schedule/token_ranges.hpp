// Token placement for context parallelism: which tokens of a sequence each rank holds, and in which row of its tensors.
// Three placements; with 4 ranks and 16 tokens, the rank of each token:
//
//     contiguous   0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3      one range per rank
//     zigzag       0 0 1 1 2 2 3 3 3 3 2 2 1 1 0 0      one range from the first half, one from the second
//     striped      0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3      every fourth token
//
// Under a causal mask later tokens see more keys, so with contiguous placement the last rank has by far the most work;
// zigzag and striped balance it. Lengths need not be multiples of anything: ranks differ by at most one token, and some
// may have none.
//
// The rows of a rank's tensors are in position order for every placement. So between a rank's own queries and keys a
// causal mask on positions is a causal mask on rows.
#pragma once

#include <imbrex/core/config.hpp>

#include <algorithm>

namespace imbrex {

// Maximum sequence length: the sum of two positions fits 32 bits.
inline constexpr int max_tokens = (1 << 30) - 1;

// `count` positions `first`, `first + stride`, ...; the stride is that of the token_ranges.
struct token_range {
    int first = 0;
    int count = 0;
};

// The positions of a rank's rows: the first range, then the second.
struct token_ranges {
    token_range ranges[2] = {};
    int stride = 1;

    IMBREX_FN constexpr int count() const { return ranges[0].count + ranges[1].count; }
    IMBREX_FN constexpr int position(int row) const {
        const bool second = row >= ranges[0].count;
        return ranges[second].first + (second ? row - ranges[0].count : row) * stride;
    }
};

enum class token_placement { contiguous, zigzag, striped };

// The rank and row of a token.
struct token_location {
    int rank;
    int row;
};

namespace detail {

// Part `number` of a sequence split into `pieces`; the first tokens % pieces parts are one token longer.
IMBREX_FN constexpr token_range even_split(int tokens, int pieces, int number) {
    const int shortest = tokens / pieces, longer = tokens % pieces;
    return {number * shortest + std::min(number, longer), shortest + (number < longer ? 1 : 0)};
}

IMBREX_FN constexpr int even_split_containing(int tokens, int pieces, int position) {
    const int shortest = tokens / pieces, longer = tokens % pieces;
    const int in_longer = longer * (shortest + 1);
    return position < in_longer ? position / (shortest + 1) : longer + (position - in_longer) / shortest;
}

}  // namespace detail

IMBREX_FN constexpr token_ranges tokens_of(token_placement placement, int tokens, int ranks, int rank) {
    switch (placement) {
        case token_placement::contiguous:
            return {{detail::even_split(tokens, ranks, rank), {}}, 1};
        case token_placement::zigzag:
            return {{detail::even_split(tokens, 2 * ranks, rank),
                     detail::even_split(tokens, 2 * ranks, 2 * ranks - 1 - rank)},
                    1};
        case token_placement::striped:
            break;
    }
    return {{{rank, tokens / ranks + (rank < tokens % ranks ? 1 : 0)}, {}}, ranks};
}

// The number of tokens on the ranks before this one.
IMBREX_FN constexpr int tokens_before(token_placement placement, int tokens, int ranks, int rank) {
    if (placement != token_placement::zigzag) return detail::even_split(tokens, ranks, rank).first;
    const int in_second_half = tokens - detail::even_split(tokens, 2 * ranks, 2 * ranks - rank).first;
    return detail::even_split(tokens, 2 * ranks, rank).first + in_second_half;
}

IMBREX_FN constexpr token_location location_of(token_placement placement, int tokens, int ranks, int position) {
    if (placement == token_placement::striped) return {position % ranks, position / ranks};
    if (placement == token_placement::contiguous) {
        const int rank = detail::even_split_containing(tokens, ranks, position);
        return {rank, position - detail::even_split(tokens, ranks, rank).first};
    }
    const int piece = detail::even_split_containing(tokens, 2 * ranks, position);
    const int rank = std::min(piece, 2 * ranks - 1 - piece);
    const int before = piece == rank ? 0 : detail::even_split(tokens, 2 * ranks, rank).count;
    return {rank, before + position - detail::even_split(tokens, 2 * ranks, piece).first};
}

constexpr const char* name_of(token_placement placement) {
    return placement == token_placement::contiguous ? "contiguous"
           : placement == token_placement::zigzag   ? "zigzag"
                                                    : "striped";
}

}  // namespace imbrex
