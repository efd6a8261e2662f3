// RoPE on the device: cos and sin of a pair's angle at a position.
//
// inv_freq is stored in fixed point, in units of 2^-64 turns per position. The angle is then one integer product modulo
// a full turn, which is exact. With floats it would be off by up to 0.03 radians at position 1,000,000.
//
//     inv_freq * position, upper 32 bits | qq rrrrrrrrrrrr... |      q   the nearest quarter turn
//                                                                    r   the rest, -1/8 to 1/8 of a turn: polynomials
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/rope/style.hpp>
#include <imbrex/ops/register/rope.hpp>

#include <cstdint>

namespace imbrex {

// cos and sin of an angle in 2^-64 turns. The error is at most 10^-7.
constexpr IMBREX_FN cos_sin rope_cos_sin_of(std::uint64_t inv_freq) {
    const auto upper = static_cast<std::uint32_t>((inv_freq + 0x80000000U) >> 32);
    const std::uint32_t quarter = (upper + 0x20000000U) >> 30;
    const float x = 0x1.921fb6p-30F * static_cast<float>(static_cast<std::int32_t>(upper - (quarter << 30)));
    const float square = x * x;
    // Taylor series; the remainder is below 3 * 10^-8.
    const float sine =
        x + x * square * (-1.0f / 6 + square * (1.0f / 120 + square * (-1.0f / 5040 + square * (1.0f / 362880))));
    const float cosine = 1 + square * (-0.5f + square * (1.0f / 24 + square * (-1.0f / 720 + square * (1.0f / 40320))));
    const bool odd = quarter % 2 != 0;
    const float along = odd ? sine : cosine, across = odd ? cosine : sine;
    return {quarter == 1 || quarter == 2 ? -along : along, quarter >= 2 ? -across : across};
}

struct rope_embedding {
    const std::uint64_t* inv_freq = nullptr;  // one per pair, fixed point, in the memory of the kernel's world
    int rotary_dim = 0;                       // columns that are rotated, the first of each head; 0: none
    rope_style style = rope_style::half_split;
    float attention_factor = 1;  // factor of the rotated columns (YaRN)

    IMBREX_FN bool given() const { return rotary_dim != 0; }

    // cos and sin of a pair; negative positions rotate backwards.
    IMBREX_FN cos_sin at(int pair, int position) const {
        const cos_sin found = rope_cos_sin_of(inv_freq[pair] * static_cast<std::uint64_t>(position));
        return {attention_factor * found.cosine, attention_factor * found.sine};
    }
    // cos and sin of the pair that begins at this column. Interleaved: both columns of the pair give the same.
    IMBREX_FN cos_sin of_column(int column, int position) const {
        return at(style == rope_style::interleaved ? column / 2 : column, position);
    }
    // First columns of pairs are below this; interleaved: the even ones.
    IMBREX_FN int pair_first_columns() const { return style == rope_style::interleaved ? rotary_dim : rotary_dim / 2; }
};

}  // namespace imbrex
