// Rows of activations staged in shared memory by a warp for the SIMT / CPU GEMV (ops/warp/simt_gemv.hpp): as floats, or
// quantised to int8 in groups of 32. The size is the same in both worlds, the order is not. On the device each group is
// padded by four floats, so that lanes that read adjacent chunks or groups have no bank conflict. In the host world
// values are in the interleaved order of the weight vectors (hw/host/interleaved_weights.hpp).
#pragma once

#include <imbrex/core/weight_rows.hpp>

#include <cstdint>

namespace imbrex {

template <class Weights, int Rows, int BlockK>
struct staged_float_rows {
    static_assert(BlockK % 512 == 0, "imbrex: staged rows have a block_k that is a multiple of 512");
    using weights = Weights;
    static constexpr int block_k = BlockK;
    static constexpr int row_stride = BlockK / weight_group_size * 36 + 16;
    static constexpr int initial_stride = BlockK / 8;

    alignas(64) float values[Rows * row_stride];
    // Initial values of sums that cancel the offset of the weights; host world only.
    alignas(64) float initial_sums[Rows * initial_stride];
};

// A value is its byte times the scale of its group.
template <class Weights, int Rows, int BlockK>
struct staged_int8_rows {
    static_assert(BlockK % 512 == 0, "imbrex: staged rows have a block_k that is a multiple of 512");
    using weights = Weights;
    static constexpr int block_k = BlockK;
    static constexpr int row_stride = BlockK + 64;
    static constexpr int initial_stride = BlockK / 4;

    alignas(64) std::int8_t values[Rows * row_stride];
    // Scales per word of weights in the host world and per group on the device; initial values of sums; sums of groups.
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
