// Rows of x in the host world as they are multiplied: floats in the order of the weights' planes (hw/host/weight_planes.hpp), or bytes
// in the order of the weights' bytes, with the scale of its group for each word of them.
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/weight_planes.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

template <class T>
void copy_as_floats(float* __restrict to, const T* __restrict from, int count) {
    // In strips: compilers are shy of vectorising a loop of unknown, perhaps small, length.
    constexpr int strip = 32;
    int done = 0;
    for (; done + strip <= count; done += strip) {
        for (int i = 0; i < strip; ++i) to[done + i] = convert<float>(from[done + i]);
    }
    for (; done < count; ++done) to[done] = convert<float>(from[done]);
}

// 1.5 * 2^23: beside it the adder rounds to a whole number, which is in the low bits of the result.
inline constexpr float whole_number_anchor = 12582912.0f;

// Rounds a group to int8: its largest becomes 127 or -127. One with something infinite, or no number, gets a scale that is neither
// finite, so that nothing made of it is. Returns the scale.
inline float round_group(std::int8_t* __restrict to, const float* __restrict from) {
    std::uint32_t largest = 0;  // of the bits, which order as the numbers without a sign do
    for (int i = 0; i < weights_in_group; ++i) {
        const std::uint32_t bits = bits_as<std::uint32_t>(from[i]) & ~float_sign;
        largest = bits > largest ? bits : largest;
    }
    const float scale = bits_as<float>(largest) / 127.0f;
    // A group of numbers so small that there is no inverse is zeros.
    const float inverse = scale > 0x1p-120f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < weights_in_group; ++i) {
        to[i] = static_cast<std::int8_t>(bits_as<std::uint32_t>(from[i] * inverse + whole_number_anchor));
    }
    return scale;
}

template <class Vectors, class Weights>
struct row_staging {
    using of = weight_planes<Vectors, Weights>;
    using words = typename plane_vectors<Vectors>::words;
    using integers = typename plane_vectors<Vectors>::integers;
    static constexpr int lanes = plane_vectors<Vectors>::lanes;
    static constexpr int unit = of::planes * lanes;  // weights
    static constexpr int byte_planes = Weights::takes == inputs::rounded ? of::planes / 4 : 1;
    // What a byte of weights has too much where bytes are multiplied.
    static constexpr int byte_offset = of::offset != 0 ? of::offset : byte_products<Vectors>::offset_of_signed;

    // Where vectors are so narrow, a scale for each group and not for each word (hw/host/group_products.hpp), and a vector to begin with.
    static constexpr bool by_groups = Weights::takes == inputs::rounded && lanes <= 4;
    static constexpr int at_once = by_groups ? lanes * weights_in_group : unit;
    static constexpr int columns_of_start = by_groups ? weights_in_group : of::planes;

    static constexpr int padded(int columns) { return (columns + at_once - 1) / at_once * at_once; }

    template <class Staged, class T>
    static void stage(Staged& to, int row, const T* from, int columns) {
        const int all = padded(columns);
        alignas(64) float natural[Staged::depth];
        copy_as_floats(natural, from, columns);
        std::fill(natural + columns, natural + all, 0.0f);
        if constexpr (Weights::takes == inputs::rounded) {
            round(to.values + row * Staged::row_stride, to.scales + row * Staged::start_stride,
                  to.starts + row * Staged::start_stride, natural, all);
        } else {
            order(to.values + row * Staged::row_stride, to.starts + row * Staged::start_stride, natural, all);
        }
    }

  private:
    static void order(float* __restrict to, float* __restrict starts, const float* __restrict from, int columns) {
        if constexpr (of::planes == 1) {
            std::copy_n(from, columns, to);
            return;
        }
        for (int first = 0; first < columns; first += unit) {
            for (int plane = 0; plane < of::planes; ++plane) {
                const float factor = of::x_factor(plane);
                for (int i = 0; i < lanes; ++i) {
                    to[first + plane * lanes + i] = factor * from[first + of::template element<of::planes>(plane, i)];
                }
            }
            if constexpr (of::offset != 0) {
                float sums[lanes] = {};
                for (int plane = 0; plane < of::planes; ++plane) {
                    const float factor = -of::offset / of::x_factor(plane);
                    for (int i = 0; i < lanes; ++i) sums[i] += factor * to[first + plane * lanes + i];
                }
                std::copy_n(sums, lanes, starts + first / of::planes);
            }
        }
    }

    // Groups become bytes. Of weights with two planes of bytes, each has every other run of sixteen.
    static void round(std::int8_t* __restrict to, float* __restrict scales, std::int32_t* __restrict starts,
                      const float* __restrict from, int columns) {
        constexpr int run = byte_planes == 2 ? 16 : weights_in_group, plane_bytes = 4 * lanes;
        static_assert(byte_planes == 1 || unit % weights_in_group == 0, "imbrex: units have whole groups");
        for (int first = 0; first < columns; first += weights_in_group) {
            alignas(64) std::int8_t natural[weights_in_group];
            const float scale = round_group(natural, from + first);
            std::int8_t* const begin = to + first / unit * unit + first % unit / byte_planes;
            for (int plane = 0; plane < byte_planes; ++plane) {
                std::memcpy(begin + plane * plane_bytes, natural + plane * run, run);
            }
            std::fill_n(scales + first / columns_of_start, weights_in_group / columns_of_start, scale);
        }
        if constexpr (by_groups) {
            constexpr auto anchor = static_cast<std::int32_t>(bits_as<std::uint32_t>(whole_number_anchor));
            for (int group = 0; group * weights_in_group < columns; ++group) {
                const std::int8_t* const some = to + group * weights_in_group;
                const integers start = {anchor - byte_offset * std::accumulate(some, some + weights_in_group, 0)};
                std::memcpy(starts + group * lanes, &start, sizeof start);
            }
        } else {
            for (int first = 0; first < columns; first += unit) {
                integers sums = {};
                for (int plane = 0; plane < byte_planes; ++plane) {
                    const auto bytes = plane_vectors<Vectors>::template load<words>(to + first + plane * plane_bytes);
                    byte_products<Vectors>::add(sums, words{} + 0x01010101U, bytes);
                }
                sums *= -byte_offset;
                std::memcpy(starts + first / of::planes, &sums, sizeof sums);
            }
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
