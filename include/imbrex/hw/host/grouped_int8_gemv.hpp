// CPU GEMV with grouped weights and int8 activations for vectors of at most one group of words (Arm NEON: four). Wider
// vectors keep sums over many groups and a scale beside each word (hw/host/simt_gemv.hpp); here that would cost a
// multiplication, an addition and three loads per 16 bytes. Instead four groups are processed at a time:
//
//     group 0   w . x   w . x    a  b  c  d    two pairwise additions         sums of    0  1  2  3
//     group 1   w . x   w . x    e  f  g  h    ------------------------>      scales     of x, of the weights
//     group 2 ...                                                             added to   one vector
//     group 3
//
// The work after the integer dot products is done once per four groups. For int4 at memory bandwidth every instruction
// counts: sums start from a loaded value instead of zero, which saves an addition later; that value includes the magic
// number that converts an integer to float without a conversion; and two weight rows are processed side by side, so x
// is loaded once for both.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/interleaved_weights.hpp>
#include <imbrex/hw/host/row_staging.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

template <class Vectors, class Weights>
struct grouped_int8_gemv {
    using vectors = simd_operations<Vectors>;
    using floats = typename vectors::floats;
    using words = typename vectors::words;
    using integers = typename vectors::integers;
    using bytes = int8_dot<Vectors>;
    using staging = row_staging<Vectors, Weights>;
    using scale = typename Weights::scale;
    static constexpr int at_once = vectors::lanes;                                    // groups
    static constexpr int parts = weight_group_size / vectors::bytes;                  // vectors of bytes per group
    static constexpr int group_bytes = weight_group_size / Weights::values_per_byte;  // in memory
    static constexpr int cache_line = 64;
    static constexpr int rows_at_once = 2;                     // weight rows
    static constexpr std::ptrdiff_t prefetch_distance = 8192;  // bytes

    // Weight rows from the same column on.
    struct weight_rows {
        const unsigned char* values[rows_at_once];
        const scale* scales[rows_at_once];
    };

    // to[m * stride + n] = x[m] . weights[n] over a number of groups; x is staged from this group on.
    template <int Rows, class Staged>
    [[gnu::always_inline]] static void multiply(floats* to, int stride, const Staged& x, int first, int base,
                                                const weight_rows& weights, int groups) {
        floats sums[Rows][rows_at_once] = {};
        // The next data follows the rows that are read side by side. It is prefetched, since the hardware prefetcher
        // does not cross page boundaries.
        const std::ptrdiff_t distance =
            std::max(prefetch_distance, rows_at_once * (weights.values[1] - weights.values[0]));
        int group = 0;
        for (; group + at_once <= groups; group += at_once) {
            vectors::template unroll<rows_at_once>([&](auto n) {
                const unsigned char* const from = weights.values[n] + group * group_bytes;
                for (int i = 0; i < at_once * group_bytes; i += cache_line) {
                    __builtin_prefetch(from + distance + i, 0, 2);
                }
                add_some<n>(sums, x, first, base + group, from, weights.scales[n] + group);
            });
        }
        if (group < groups) {
            vectors::template unroll<rows_at_once>([&](auto n) {
                // Missing groups have a scale of 0.
                unsigned char values[at_once * group_bytes] = {};
                scale scales[at_once] = {};
                std::copy(weights.values[n] + group * group_bytes, weights.values[n] + groups * group_bytes, values);
                std::copy(weights.scales[n] + group, weights.scales[n] + groups, scales);
                add_some<n>(sums, x, first, base + group, values, scales);
            });
        }
        vectors::template unroll<Rows * rows_at_once>([&](auto i) {
            to[i / rows_at_once * stride + i % rows_at_once] = sums[i / rows_at_once][i % rows_at_once];
        });
    }

  private:
    template <int Number, int Rows, class Staged>
    [[gnu::always_inline]] static void add_some(floats (&sums)[Rows][rows_at_once], const Staged& x, int first,
                                                int base, const unsigned char* values, const scale* scales) {
        words weights[at_once][parts];
        vectors::template unroll<at_once>([&](auto g) { load(weights[g], values + g * group_bytes); });
        const floats own = vectors::upconvert(scales);
        vectors::template unroll<Rows>([&](auto m) {
            const auto* const row = x.values + (first + m) * Staged::row_stride + base * weight_group_size;
            const auto* const initial_sums =
                x.initial_sums + (first + m) * Staged::initial_stride + base * vectors::lanes;
            integers products[at_once];
            vectors::template unroll<at_once>(
                [&](auto g) { products[g] = vectors::template load<integers>(initial_sums + g * vectors::lanes); });
            vectors::template unroll<at_once * parts>([&](auto i) {
                bytes::add(products[i / parts], weights[i / parts][i % parts],
                           vectors::template load<words>(row + i * vectors::bytes));
            });
            const floats found = simd_bit_cast<floats>(bytes::sum_each(products)) - round_to_int_magic;
            sums[m][Number] +=
                found * vectors::template load<floats>(x.scales + (first + m) * Staged::initial_stride + base) * own;
        });
    }

    // The weights of a group as bytes, in the order of staged x.
    [[gnu::always_inline]] static void load(words (&to)[parts], const unsigned char* from) {
        if constexpr (staging::byte_interleave == 2) {
            const words both = vectors::template load<words>(from);
            to[0] = both & 0x0f0f0f0fU;
            typedef std::uint8_t single __attribute__((vector_size(vectors::bytes)));
            to[1] = simd_bit_cast<words>(simd_bit_cast<single>(both) >> 4);
        } else {
            vectors::template unroll<parts>([&](auto i) {
                to[i] = vectors::template load<words>(from + i * vectors::bytes) ^ (staging::byte_offset * 0x01010101U);
            });
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
