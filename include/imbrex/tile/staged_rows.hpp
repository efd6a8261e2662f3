// Rows that a warp keeps in shared memory to multiply many rows of weights with: as floats, or rounded to int8 in groups of 32. Bytes
// are the same in both worlds; where a number lies differs. On the device four floats are left free behind each group, so that
// lanes that read neighbouring chunks, or neighbouring groups, meet no bank twice. In the host world numbers lie in the order in which
// vectors of the weights have theirs (hw/host/weight_planes.hpp).
#pragma once

#include <imbrex/core/weight_rows.hpp>

#include <cstdint>

namespace imbrex {

template <class Weights, int Rows, int Depth>
struct float_rows {
    static_assert(Depth % 512 == 0, "imbrex: rows to multiply with are staged in pieces of a multiple of 512");
    using weights = Weights;
    static constexpr int depth = Depth;
    static constexpr int row_stride = Depth / weights_in_group * 36 + 16;
    static constexpr int start_stride = Depth / 8;

    alignas(64) float values[Rows * row_stride];
    // What sums of some columns begin with, since weights have an offset. In the host world alone.
    alignas(64) float starts[Rows * start_stride];
};

// A value is its byte times the scale of its group.
template <class Weights, int Rows, int Depth>
struct int8_rows {
    static_assert(Depth % 512 == 0, "imbrex: rows to multiply with are staged in pieces of a multiple of 512");
    using weights = Weights;
    static constexpr int depth = Depth;
    static constexpr int row_stride = Depth + 64;
    static constexpr int start_stride = Depth / 4;

    alignas(64) std::int8_t values[Rows * row_stride];
    // For each word of weights in the host world, and each group on the device; what sums begin with, and the sum of each group.
    alignas(64) float scales[Rows * start_stride];
    alignas(64) std::int32_t starts[Rows * start_stride];
};

template <class Weights, int Rows, int Depth, inputs Takes = Weights::takes>
struct staged_rows_choice {
    using type = float_rows<Weights, Rows, Depth>;
};
template <class Weights, int Rows, int Depth>
struct staged_rows_choice<Weights, Rows, Depth, inputs::rounded> {
    using type = int8_rows<Weights, Rows, Depth>;
};
template <class Weights, int Rows, int Depth>
using staged_rows = typename staged_rows_choice<Weights, Rows, Depth>::type;

}  // namespace imbrex
