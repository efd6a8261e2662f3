// Staging of activation rows in the host world: floats in the interleaved order of the weights
// (hw/host/interleaved_weights.hpp), or int8 in the order of the weights' bytes, with the group scale repeated for each
// word.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/interleaved_weights.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace imbrex::hw {

inline namespace IMBREX_WORLDS {

template <class T>
void copy_as_floats(float* __restrict to, const T* __restrict from, int count) {
    // In blocks of fixed length: compilers rarely vectorise a loop of unknown, possibly small, length.
    constexpr int strip = 32;
    int done = 0;
    for (; done + strip <= count; done += strip) {
        for (int i = 0; i < strip; ++i) to[done + i] = convert<float>(from[done + i]);
    }
    for (; done < count; ++done) to[done] = convert<float>(from[done]);
}

// 1.5 * 2^23: adding it rounds to an integer, which is in the low bits of the result.
inline constexpr float round_to_int_magic = 12582912.0f;

// Quantises a group to int8 and returns the scale: the value of the largest magnitude becomes 127 or -127. A group with
// an infinity or NaN gets a non-finite scale, so that its results are non-finite too.
inline float quantise_group(std::int8_t* __restrict to, const float* __restrict from) {
    std::uint32_t abs_max_bits = 0;  // bits of magnitudes order like the magnitudes
    for (int i = 0; i < weight_group_size; ++i) {
        const std::uint32_t bits = bits_as<std::uint32_t>(from[i]) & ~float_sign;
        abs_max_bits = bits > abs_max_bits ? bits : abs_max_bits;
    }
    const float scale = bits_as<float>(abs_max_bits) / 127.0f;
    // A group whose scale has no finite inverse becomes zeros.
    const float inverse = scale > 0x1p-120f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < weight_group_size; ++i) {
        to[i] = static_cast<std::int8_t>(bits_as<std::uint32_t>(from[i] * inverse + round_to_int_magic));
    }
    return scale;
}

template <class Vectors, class Weights>
struct row_staging {
    using of = interleaved_weights<Vectors, Weights>;
    using words = typename simd_operations<Vectors>::words;
    using integers = typename simd_operations<Vectors>::integers;
    static constexpr int lanes = simd_operations<Vectors>::lanes;
    static constexpr int unit = of::interleave * lanes;  // weights
    static constexpr int byte_interleave =
        Weights::activations == activation_quantisation::int8 ? of::interleave / 4 : 1;
    // The offset that the bytes of weights have in an integer dot product.
    static constexpr int byte_offset = of::offset != 0 ? of::offset : int8_dot<Vectors>::offset_of_signed;

    // For such narrow vectors: one scale per group instead of per word (hw/host/grouped_int8_gemv.hpp), and a vector of
    // initial values.
    static constexpr bool by_groups = Weights::activations == activation_quantisation::int8 && lanes <= 4;
    static constexpr int at_once = by_groups ? lanes * weight_group_size : unit;
    static constexpr int columns_per_initial = by_groups ? weight_group_size : of::interleave;

    static constexpr int padded(int columns) { return ceil_div(columns, at_once) * at_once; }

    template <class Staged, class T>
    static void stage(Staged& to, int row, const T* from, int columns) {
        const int all = padded(columns);
        alignas(64) float natural[Staged::block_k];
        copy_as_floats(natural, from, columns);
        std::fill(natural + columns, natural + all, 0.0f);
        if constexpr (Weights::activations == activation_quantisation::int8) {
            quantise(to.values + row * Staged::row_stride, to.scales + row * Staged::initial_stride,
                     to.initial_sums + row * Staged::initial_stride, natural, all);
        } else {
            interleave(to.values + row * Staged::row_stride, to.initial_sums + row * Staged::initial_stride, natural,
                       all);
        }
    }

  private:
    static void interleave(float* __restrict to, float* __restrict initial_sums, const float* __restrict from,
                           int columns) {
        if constexpr (of::interleave == 1) {
            std::copy_n(from, columns, to);
            return;
        }
        for (int first = 0; first < columns; first += unit) {
            for (int plane = 0; plane < of::interleave; ++plane) {
                const float factor = of::x_factor(plane);
                for (int i = 0; i < lanes; ++i) {
                    to[first + plane * lanes + i] =
                        factor * from[first + of::template element<of::interleave>(plane, i)];
                }
            }
            if constexpr (of::offset != 0) {
                float sums[lanes] = {};
                for (int plane = 0; plane < of::interleave; ++plane) {
                    const float factor = -of::offset / of::x_factor(plane);
                    for (int i = 0; i < lanes; ++i) sums[i] += factor * to[first + plane * lanes + i];
                }
                std::copy_n(sums, lanes, initial_sums + first / of::interleave);
            }
        }
    }

    // Quantises groups to bytes. If the weights have two interleaved byte vectors, each has every other run of sixteen.
    static void quantise(std::int8_t* __restrict to, float* __restrict scales, std::int32_t* __restrict initial_sums,
                         const float* __restrict from, int columns) {
        constexpr int run = byte_interleave == 2 ? 16 : weight_group_size, plane_bytes = 4 * lanes;
        static_assert(byte_interleave == 1 || unit % weight_group_size == 0, "imbrex: units have whole groups");
        for (int first = 0; first < columns; first += weight_group_size) {
            alignas(64) std::int8_t natural[weight_group_size];
            const float scale = quantise_group(natural, from + first);
            std::int8_t* const begin = to + first / unit * unit + first % unit / byte_interleave;
            for (int plane = 0; plane < byte_interleave; ++plane) {
                std::memcpy(begin + plane * plane_bytes, natural + plane * run, run);
            }
            std::fill_n(scales + first / columns_per_initial, weight_group_size / columns_per_initial, scale);
        }
        if constexpr (by_groups) {
            constexpr auto anchor = static_cast<std::int32_t>(bits_as<std::uint32_t>(round_to_int_magic));
            for (int group = 0; group * weight_group_size < columns; ++group) {
                const std::int8_t* const some = to + group * weight_group_size;
                const integers start = {anchor - byte_offset * std::accumulate(some, some + weight_group_size, 0)};
                std::memcpy(initial_sums + group * lanes, &start, sizeof start);
            }
        } else {
            for (int first = 0; first < columns; first += unit) {
                integers sums = {};
                for (int plane = 0; plane < byte_interleave; ++plane) {
                    const auto bytes = simd_operations<Vectors>::template load<words>(to + first + plane * plane_bytes);
                    int8_dot<Vectors>::add(sums, words{} + 0x01010101U, bytes);
                }
                sums *= -byte_offset;
                std::memcpy(initial_sums + first / of::interleave, &sums, sizeof sums);
            }
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::hw
