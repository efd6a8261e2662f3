// Products of weights in groups with bytes, where a vector has no more words than a group has: Arm's of four. Wider ones keep a
// vector of sums over many groups, and a scale beside each word of it (hw/host/row_products.hpp); here that would be a
// multiplication, an addition and three loads for every 16 bytes. Instead four groups are taken at a time:
//
//     group 0   w . x   w . x    a  b  c  d    added up by pairs, twice       sums of    0  1  2  3
//     group 1   w . x   w . x    e  f  g  h    ------------------------>      scales     of x, of the weights
//     group 2 ...                                                             added to   one vector
//     group 3
//
// So what comes after the products of bytes is done once for four groups.
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/row_staging.hpp>
#include <imbrex/hw/host/weight_planes.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

template <class Vectors, class Weights>
struct group_products {
    using vectors = plane_vectors<Vectors>;
    using floats = typename vectors::floats;
    using words = typename vectors::words;
    using integers = typename vectors::integers;
    using bytes = byte_products<Vectors>;
    using staging = row_staging<Vectors, Weights>;
    using scale = typename Weights::scale;
    static constexpr int at_once = vectors::lanes;                                  // groups
    static constexpr int parts = weights_in_group / vectors::bytes;                 // vectors of bytes that a group has
    static constexpr int group_bytes = weights_in_group / Weights::values_in_byte;  // in memory
    static constexpr int cache_line = 64;

    // sums[m] += x[m] . weights, over so many groups. x is staged from this group on.
    template <int Rows, class Staged>
    [[gnu::always_inline]] static void add(floats (&sums)[Rows], const Staged& x, int first, int base,
                                           const unsigned char* values, const scale* scales, int groups) {
        int group = 0;
        for (; group + at_once <= groups; group += at_once) {
            const unsigned char* const from = values + group * group_bytes;
            // Rows follow each other, which a processor does not know before it has missed the first of each page.
            for (int i = 0; i < at_once * group_bytes; i += cache_line) __builtin_prefetch(from + 4096 + i, 0, 2);
            add_some<Rows>(sums, x, first, base + group, from, scales + group);
        }
        if (group < groups) {
            // The groups that are missing have the scale 0.
            unsigned char some_values[at_once * group_bytes] = {};
            scale some_scales[at_once] = {};
            std::copy(values + group * group_bytes, values + groups * group_bytes, some_values);
            std::copy(scales + group, scales + groups, some_scales);
            add_some<Rows>(sums, x, first, base + group, some_values, some_scales);
        }
    }

  private:
    template <int Rows, class Staged>
    [[gnu::always_inline]] static void add_some(floats (&sums)[Rows], const Staged& x, int first, int base,
                                                const unsigned char* values, const scale* scales) {
        words weights[at_once][parts];
        vectors::template unroll<at_once>([&](auto g) { load(weights[g], values + g * group_bytes); });
        const floats own = vectors::widen(scales);
        vectors::template unroll<Rows>([&](auto m) {
            const auto* const row = x.values + (first + m) * Staged::row_stride + base * weights_in_group;
            integers products[at_once] = {};
            vectors::template unroll<at_once * parts>([&](auto i) {
                bytes::add(products[i / parts], weights[i / parts][i % parts],
                           vectors::template load<words>(row + i * vectors::bytes));
            });
            integers found = bytes::sum_each(products);
            const int place = (first + m) * Staged::start_stride + base;
            if constexpr (staging::byte_offset != 0) found += vectors::template load<integers>(x.starts + place);
            sums[m] += vectors::to_floats(found) * vectors::template load<floats>(x.scales + place) * own;
        });
    }

    // A group's weights as bytes, in the order that x is staged in.
    [[gnu::always_inline]] static void load(words (&to)[parts], const unsigned char* from) {
        if constexpr (staging::byte_planes == 2) {
            const words both = vectors::template load<words>(from);
            to[0] = both & 0x0f0f0f0fU;
            typedef std::uint8_t single __attribute__((vector_size(vectors::bytes)));
            to[1] = vector_as<words>(vector_as<single>(both) >> 4);
        } else {
            vectors::template unroll<parts>([&](auto i) {
                to[i] = vectors::template load<words>(from + i * vectors::bytes) ^ (staging::byte_offset * 0x01010101U);
            });
        }
    }
};

}  // namespace imbrex::hw
