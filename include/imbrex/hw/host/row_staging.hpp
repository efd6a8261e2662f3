// Rows of x in the host world as they are multiplied: floats in the order of the weights' planes (hw/host/weight_planes.hpp), or bytes
// in the order of the weights' bytes, with the scale of its group for each word of them.
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/weight_planes.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace imbrex::hw {

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
    // Beside 1.5 * 2^23 the adder rounds to a whole number, which is in the low bits of the result.
    for (int i = 0; i < weights_in_group; ++i) {
        to[i] = static_cast<std::int8_t>(bits_as<std::uint32_t>(from[i] * inverse + 12582912.0f));
    }
    return scale;
}

template <class Vectors, class Weights>
struct row_staging {
    using of = weight_planes<Vectors, Weights>;
    static constexpr int lanes = plane_vectors<Vectors>::lanes;
    static constexpr int unit = of::planes * lanes;  // weights
    static constexpr int byte_planes = Weights::takes == inputs::rounded ? of::planes / 4 : 1;
    // What a byte of weights has too much where bytes are multiplied.
    static constexpr int byte_offset = of::offset != 0 ? of::offset : byte_products<Vectors>::offset_of_signed;

    static constexpr int padded(int columns) { return (columns + unit - 1) / unit * unit; }

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

    static void round(std::int8_t* __restrict to, float* __restrict scales, std::int32_t* __restrict starts,
                      const float* __restrict from, int columns) {
        for (int first = 0; first < columns; first += unit) {
            alignas(64) std::int8_t natural[unit < weights_in_group ? weights_in_group : unit];
            float own[sizeof natural / weights_in_group];
            static_assert(unit % weights_in_group == 0 || byte_planes == 1, "imbrex: units have whole groups");
            if (first % weights_in_group != 0) continue;  // half of a group, which the one before has had
            for (int i = 0; i < static_cast<int>(sizeof natural); i += weights_in_group) {
                own[i / weights_in_group] = round_group(natural + i, from + first + i);
            }
            for (int i = 0; i < static_cast<int>(sizeof natural) / of::planes; ++i) {
                std::int32_t sum = 0;
                for (int b = 0; b < of::planes; ++b) {
                    // Bytes of a word side by side, those of high nibbles in a vector of their own.
                    const int high = b % byte_planes, byte = b / byte_planes;
                    const std::int8_t one = natural[of::template element<of::planes>(b, i)];
                    to[first + high * 4 * lanes + i * 4 + byte] = one;
                    sum += one;
                }
                starts[first / of::planes + i] = -byte_offset * sum;
                scales[first / of::planes + i] = own[i / of::words_in_group];
            }
        }
    }
};

}  // namespace imbrex::hw
