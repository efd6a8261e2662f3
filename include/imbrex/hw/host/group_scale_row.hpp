// Group scales of a weight row in the host world, two vectors' worth at a time: each scale is broadcast to all words of
// its group, in the interleaved order of the weight units (hw/host/interleaved_weights.hpp).
#pragma once

#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/interleaved_weights.hpp>

#include <algorithm>
#include <type_traits>

namespace imbrex::hw {

template <class Vectors, class Weights>
struct group_scale_row {
    using vectors = simd_operations<Vectors>;
    using floats = typename vectors::floats;
    using words = typename vectors::words;
    using integers = typename vectors::integers;
    using of = interleaved_weights<Vectors, Weights>;
    using scale = typename Weights::scale;
    static constexpr int lanes = vectors::lanes;
    static constexpr int at_once = 2 * lanes;
    static constexpr int units_at_once = 2 * of::words_in_group;  // units of weights, covering 2 * lanes groups

    const scale* values;
    const scale* end;  // end of the whole array: reads stop here
    int groups;

    template <class Piece>
    group_scale_row(const Piece& piece, int row)
        : values(piece.all.scale_at(piece.row + row, piece.column)),
          end(piece.all.scale_at(piece.all.rows, 0)),
          groups(piece.columns / weight_group_size) {}

    // Broadcasts scales to the words of their units. Zeros after the last group.
    [[gnu::always_inline]] void spread(floats (&to)[units_at_once], int group) const {
        floats both[2];
        if (end - (values + group) >= at_once) [[likely]] {
            load(both, values + group);
        } else {
            scale some[at_once] = {};
            std::copy(values + group, values + groups, some);
            load(both, some);
        }
        for (int i = 0; i < 2; ++i) {
            const integers there = simd_bit_cast<integers>(numbers() < integers{} + (groups - group - i * lanes));
            const words kept = simd_bit_cast<words>(both[i] * of::scale_factor) & simd_bit_cast<words>(there);
            vectors::template spread<of::words_in_group>(to + i * of::words_in_group, simd_bit_cast<floats>(kept));
        }
    }

  private:
    [[gnu::always_inline]] static void load(floats (&to)[2], const scale* from) {
        if constexpr (std::is_same_v<scale, float>) {
            for (int i = 0; i < 2; ++i) to[i] = vectors::template load<floats>(from + i * lanes);
        } else {
            using scale_interleave = interleaved_weights<Vectors, unquantised_weight_rows<scale>>;
            const words pairs = vectors::template load<words>(from);
            const floats even = scale_interleave::template deinterleave<0>(pairs),
                         odd = scale_interleave::template deinterleave<1>(pairs);
            to[0] = Vectors::zip_low(even, odd);
            to[1] = Vectors::zip_high(even, odd);
        }
    }
    [[gnu::always_inline]] static integers numbers() {
        integers result;
        for (int i = 0; i < lanes; ++i) result[i] = i;
        return result;
    }
};

}  // namespace imbrex::hw
