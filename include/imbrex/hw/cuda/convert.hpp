// Element type conversion of register tiles. Elements of 16 bits and more lie in the same lanes for every type, so they
// are converted in place, two at a time. 8-bit elements may lie in another lane of the quad.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>

namespace imbrex::hw {

// Two neighbours, by paired conversion instructions if they exist. Integers and doubles do not go through float, which
// would round twice.
template <class To, class From>
IMBREX_KERNEL void convert_pair(To* to, const From* from) {
    constexpr bool from_float = std::is_same_v<From, float>;
    if constexpr (small_float_element<From> && std::is_same_v<To, float>) {
        const float_pair pair = From::decode_pair(read_as<word<2 * sizeof(From)>>(from));
        to[0] = pair.low;
        to[1] = pair.high;
    } else if constexpr (small_float_element<To> && from_float) {
        write_as(to, To::encode_pair(from[0], from[1]));
    } else if constexpr (small_float_element<To> && small_float_element<From>) {
        const float_pair pair = From::decode_pair(read_as<word<2 * sizeof(From)>>(from));
        write_as(to, To::encode_pair(pair.low, pair.high));
    } else {
        to[0] = imbrex::convert<To>(from[0]);
        to[1] = imbrex::convert<To>(from[1]);
    }
}

// Sixteen columns of one row are two pairs in each lane of a quad, from strip 0 (a) and from strip 1 (b); as 8-bit
// elements they are four in a row in each lane:
//
//     lane      0       1       2       3               0       1       2       3
//     pairs   a0 b0   a1 b1   a2 b2   a3 b3     <->   a0 a1   a2 a3   b0 b1   b2 b3
//
// Every lane gives two pairs to two other lanes. Two shuffles suffice if each requests one pair from every lane: even
// lanes give a first and b second, odd lanes the reverse. A word carries the pair of row g in its low half and that of
// row g+8 in its high half, so both rows move at once.
struct pairs_by_strip {
    std::uint32_t a, b;
};
struct pairs_in_line {
    std::uint32_t left, right;
};

IMBREX_KERNEL pairs_in_line gather_line(pairs_by_strip mine) {
    const int t = lane_in_quad();
    const bool odd = t % 2 != 0, upper = t >= 2;
    const int source_lane = 2 * (t % 2);
    const std::uint32_t first = __shfl_sync(all_lanes, odd ? mine.b : mine.a, source_lane + upper, 4);
    const std::uint32_t second = __shfl_sync(all_lanes, odd ? mine.a : mine.b, source_lane + !upper, 4);
    return upper ? pairs_in_line{second, first} : pairs_in_line{first, second};
}

IMBREX_KERNEL pairs_by_strip scatter_line(pairs_in_line mine) {
    const int t = lane_in_quad();
    const bool odd = t % 2 != 0, upper = t >= 2;
    const int source_lane = t / 2;
    const std::uint32_t first = __shfl_sync(all_lanes, upper ? mine.right : mine.left, source_lane + 2 * odd, 4);
    const std::uint32_t second = __shfl_sync(all_lanes, upper ? mine.left : mine.right, source_lane + 2 * !odd, 4);
    return odd ? pairs_by_strip{second, first} : pairs_by_strip{first, second};
}

// The low halves of two words, or their high halves, in one word.
IMBREX_KERNEL std::uint32_t low_halves(std::uint32_t low, std::uint32_t high) {
    return __byte_perm(low, high, 0x5410);
}
IMBREX_KERNEL std::uint32_t high_halves(std::uint32_t low, std::uint32_t high) {
    return __byte_perm(low, high, 0x7632);
}

// The pairs of both rows of a strip as 8-bit elements in one word; and the inverse.
template <class To, class From>
IMBREX_KERNEL std::uint32_t narrow_pairs(const From (&values)[4]) {
    To narrow[4];
    convert_pair(narrow, values);
    convert_pair(narrow + 2, values + 2);
    return read_as<std::uint32_t>(narrow);
}
template <class From, class To>
IMBREX_KERNEL void widen_pairs(To (&values)[4], std::uint32_t word) {
    From narrow[4];
    write_as(narrow, word);
    convert_pair(values, narrow);
    convert_pair(values + 2, narrow + 2);
}

template <class Scope, class To, class From, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL void convert_fragment(const Scope& scope, fragment<To, Rows, Columns, Warps, Layout>& to,
                                    const fragment<From, Rows, Columns, Warps, Layout>& from,
                                    source = source::current()) {
    using to_fragment = fragment<To, Rows, Columns, Warps, Layout>;
    using from_fragment = fragment<From, Rows, Columns, Warps, Layout>;
    check_scope<to_fragment>(scope);
#pragma unroll
    for (int block = 0; block < to_fragment::blocks; ++block) {
        if constexpr (to_fragment::run == from_fragment::run) {
#pragma unroll
            for (int strip = 0; strip < to_fragment::strips; ++strip) {
#pragma unroll
                for (int item = 0; item < to_fragment::each; item += 2) {
                    convert_pair(&to.values[block][strip][item], &from.values[block][strip][item]);
                }
            }
        } else if constexpr (sizeof(To) == 1) {
#pragma unroll
            for (int strip = 0; strip < to_fragment::strips; ++strip) {
                const pairs_in_line line = gather_line({narrow_pairs<To>(from.values[block][2 * strip]),
                                                        narrow_pairs<To>(from.values[block][2 * strip + 1])});
                to.set_word(block, strip, 0, low_halves(line.left, line.right));
                to.set_word(block, strip, 1, high_halves(line.left, line.right));
            }
        } else {
#pragma unroll
            for (int strip = 0; strip < from_fragment::strips; ++strip) {
                const std::uint32_t top = from.word_at(block, strip, 0), bottom = from.word_at(block, strip, 1);
                const pairs_by_strip pairs = scatter_line({low_halves(top, bottom), high_halves(top, bottom)});
                widen_pairs<From>(to.values[block][2 * strip], pairs.a);
                widen_pairs<From>(to.values[block][2 * strip + 1], pairs.b);
            }
        }
    }
}

}  // namespace imbrex::hw
