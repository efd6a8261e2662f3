// Incoherent processing: the columns of a head are multiplied by random signs and then by an orthonormal Walsh-Hadamard
// matrix, as in QuIP and FlashAttention-3. It spreads an outlier over all columns. The matrix is orthogonal and the same
// for Q and K, so that Q K^T does not change.
//
//     y = x diag(signs) H / sqrt(size)      size: the largest power of two that divides head_dim
//
// A head has head_dim / size rotations side by side. Both halves of the head take part in each of them: with
// head_dim 96 there are three of 32 columns, 0 to 15 with 48 to 63 and so on. A power of two has one, in the usual order.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/splitmix64.hpp>
#include <imbrex/kernels/rope/embedding.hpp>

#include <cmath>
#include <cstdint>

namespace imbrex {

// The number of columns that are rotated together.
constexpr IMBREX_FN int hadamard_size(int head_dim) {
    return head_dim & -head_dim;
}

struct hadamard_rotation {
    bool given = false;
    std::uint64_t seed = 0;
    int run = 0;       // columns of each half
    float factor = 1;  // 1 / sqrt(size)

    static hadamard_rotation of(std::uint64_t seed, int head_dim) {
        const int size = hadamard_size(head_dim);
        return {true, seed, size / 2, static_cast<float>(1 / std::sqrt(static_cast<double>(size)))};
    }

    // 1 or -1.
    IMBREX_FN float sign(int column) const {
        const auto word = static_cast<std::uint64_t>(column / 64);
        const std::uint64_t bits = splitmix64(splitmix64(seed + splitmix64_step) + (word + 1) * splitmix64_step);
        return (bits >> (column % 64) & 1) != 0 ? -1.0f : 1.0f;
    }
};

// How the columns of a head are divided into two tiles, such that the columns of a RoPE pair with half_split are at the
// same place in both: runs of `run` columns belong to the first and the second tile in turns. For powers of two every
// run gives the same Hadamard transform, because it only renames the bits of column indices.
//
//     run = head_dim / 2   | first       | second      |
//     run = head_dim / 4   | first | sec.| first | sec.|      rotary_dim = head_dim / 2
struct head_halves {
    int columns;  // of each half
    int run;

    IMBREX_FN int column(int half, int place) const {
        const int number = place / run;
        return number * 2 * run + half * run + place - number * run;
    }
};

// RoPE of the two halves. With half_split a pair has the same place in both halves. Interleaved pairs are neighbours.
struct rope_of_halves {
    rope_embedding rope;
    head_halves halves;

    // cos and sin of the pair that begins at this place, or of no rotation.
    IMBREX_FN cos_sin at(int half, int place, int position) const {
        const int column = halves.column(half, place);
        const bool rotated = place < halves.columns && column < rope.rotary_dim;
        return rotated ? rope.of_column(column, position) : cos_sin{1, 0};
    }
};

}  // namespace imbrex
