// 8-bit elements in column-major layout from shared memory to registers. ldmatrix transposes units of 16 bits, that is
// pairs of neighbours: one column arrives as two, in the lanes of every second one. Two rearrangements fix it:
//
//   in a lane      it requests rows such that its two words are four elements of one column of a pair and four of the
//                  other; a byte permutation makes one word the even column (2g), one the odd (2g + 1)
//   between lanes  lane group g needs columns g and g + 8: the even or odd word of groups g / 2 and g / 2 + 4. Every
//                  group gives two words to two others. Two shuffles suffice if each requests one word from every
//                  group: groups 0 to 3 give the even one first, the others the odd one
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

struct two_columns {
    std::uint32_t first, second;
};

// Converts the two words of a lane after ldmatrix to columns g and g + 8.
IMBREX_KERNEL two_columns columns_of_pairs(std::uint32_t x, std::uint32_t y) {
    // The upper two lanes of a quad have the words in the other order: see below.
    const bool upper_lane = lane_in_quad() >= 2;
    const std::uint32_t even = __byte_perm(x, y, upper_lane ? 0x2064 : 0x6420);
    const std::uint32_t odd = __byte_perm(x, y, upper_lane ? 0x3175 : 0x7531);
    const int group = lane_row();
    const bool upper = group >= 4, odd_group = group % 2 != 0;
    const int near = 4 * (group / 2) + lane_in_quad(), far = near + 16;
    const std::uint32_t one = __shfl_sync(all_lanes, upper ? odd : even, odd_group ? far : near);
    const std::uint32_t other = __shfl_sync(all_lanes, upper ? even : odd, odd_group ? near : far);
    return odd_group ? two_columns{other, one} : two_columns{one, other};
}

template <class Scope, class Fragment, class Shared>
IMBREX_KERNEL void load_bytes_transposed(const Scope& scope, Fragment& to, const Shared& from, int block) {
    // Lane t needs rows 4t to 4t + 3 of a strip, two from each of two matrices. The matrices alternate between the
    // first and the last pair, so that the eight rows of each lie in different banks.
    const int matrix = lane() / 8, line = lane() % 8, quad = line / 2;
    const int row = 4 * quad + 2 * (matrix % 2 == quad / 2 ? 0 : 1) + line % 2;
    constexpr int row_bytes = layout_of<Shared>::panel_bytes_wide;
    const int column = 16 * (block * Fragment::warps + scope.rank());
#pragma unroll
    for (int strip = 0; strip < Fragment::strips; strip += 2) {
        const bool alone = strip + 1 == Fragment::strips;
        std::uint32_t words[4];
        load_matrices<true>(
            words, place_in_shared(from, row + (alone ? 0 : 16 * (matrix / 2)), column) + 16 * strip * row_bytes);
#pragma unroll
        for (int i = 0; i < (alone ? 1 : 2); ++i) {
            const two_columns columns = columns_of_pairs(words[2 * i], words[2 * i + 1]);
            to.set_word(block, strip + i, 0, columns.first);
            to.set_word(block, strip + i, 1, columns.second);
        }
    }
}

}  // namespace imbrex::hw
