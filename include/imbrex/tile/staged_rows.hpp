// Rows that a warp keeps in shared memory to multiply many rows of weights with: as floats, or rounded to int8 in groups of 32. Bytes
// are the same in both worlds; where a number lies differs. On the device four floats are left free behind each group, so that
// lanes that read neighbouring chunks, or neighbouring groups, meet no bank twice. In the host world numbers lie in the order in which
// vectors of the weights have theirs (hw/host/interleaved_weights.hpp).
#pragma once

#include <imbrex/core/weight_rows.hpp>

#include <cstdint>

namespace imbrex {

template <class Weights, int Rows, int BlockK>
struct staged_float_rows {
    static_assert(BlockK % 512 == 0, "imbrex: rows to multiply with are staged in pieces of a multiple of 512");
    using weights = Weights;
    static constexpr int block_k = BlockK;
    static constexpr int row_stride = BlockK / weight_group_size * 36 + 16;
    static constexpr int initial_stride = BlockK / 8;

    alignas(64) float values[Rows * row_stride];
    // What sums of some columns begin with, since weights have an offset. In the host world alone.
    alignas(64) float initial_sums[Rows * initial_stride];
};

// A value is its byte times the scale of its group.
template <class Weights, int Rows, int BlockK>
struct staged_int8_rows {
    static_assert(BlockK % 512 == 0, "imbrex: rows to multiply with are staged in pieces of a multiple of 512");
    using weights = Weights;
    static constexpr int block_k = BlockK;
    static constexpr int row_stride = BlockK + 64;
    static constexpr int initial_stride = BlockK / 4;

    alignas(64) std::int8_t values[Rows * row_stride];
    // For each word of weights in the host world, and each group on the device; what sums begin with, and the sum of each group.
    alignas(64) float scales[Rows * initial_stride];
    alignas(64) std::int32_t initial_sums[Rows * initial_stride];
};

template <class Weights, int Rows, int BlockK, activation_quantisation Activations = Weights::activations>
struct staged_rows_for {
    using type = staged_float_rows<Weights, Rows, BlockK>;
};
template <class Weights, int Rows, int BlockK>
struct staged_rows_for<Weights, Rows, BlockK, activation_quantisation::int8> {
    using type = staged_int8_rows<Weights, Rows, BlockK>;
};
template <class Weights, int Rows, int BlockK>
using staged_rows = typename staged_rows_for<Weights, Rows, BlockK>::type;

}  // namespace imbrex
