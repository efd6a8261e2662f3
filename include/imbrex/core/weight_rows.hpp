// Row-major weight matrices W[n, k] for the SIMT and CPU GEMV / GEMM (kernels/linear.hpp): one type per storage format.
//
//     unquantised_weight_rows<T>     float, bf16 or fp16, any row stride
//     e4m3_weight_rows               one scale per row
//     int8_weight_rows               one scale per row and group of 32 along k
//     int4_weight_rows               the same; a group is 16 bytes, value + 8 in four bits (the layout of GGUF's Q4_0):
//
//         byte        0         1        ...     15
//         low bits    value 0   value 1          value 15
//         high bits   value 16  value 17         value 31      two vector operations unpack 32 values from 16 bytes
//
// Group scales are bf16 by default; float and fp16 are available. bf16 has the size of fp16 and the range of float, and
// a shift converts it. Its 8 bits of precision cost nothing if weights are rounded to multiples of the rounded scale.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>

#include <cstdint>

namespace imbrex {

// Whether and how the activations are quantised.
enum class activation_quantisation {
    none,  // unquantised: products and sums in float
    int8,  // int8 in groups of 32 with a scale each: integer dot products per group; faster, less accurate
};

inline constexpr int weight_group_size = 32;

template <class T>
struct unquantised_weight_rows {
    using element = T;
    static constexpr activation_quantisation activations = activation_quantisation::none;

    const T* values = nullptr;
    std::int64_t rows = 0, columns = 0;
    std::int64_t row_stride = 0;  // in elements

    IMBREX_FN const T* at(std::int64_t row, std::int64_t column) const { return values + row * row_stride + column; }
};

// Rows are packed.
struct e4m3_weight_rows {
    using element = e4m3;
    static constexpr activation_quantisation activations = activation_quantisation::none;

    const e4m3* values = nullptr;
    const float* scales = nullptr;  // [n]
    std::int64_t rows = 0, columns = 0;

    IMBREX_FN const e4m3* at(std::int64_t row, std::int64_t column) const { return values + row * columns + column; }
};

template <activation_quantisation Activations = activation_quantisation::none, class Scale = bf16>
struct int8_weight_rows {
    using scale = Scale;
    static constexpr activation_quantisation activations = Activations;
    static constexpr int values_per_byte = 1;

    const std::int8_t* values = nullptr;
    const Scale* scales = nullptr;  // [n, k / 32]
    std::int64_t rows = 0, columns = 0;

    IMBREX_FN const std::int8_t* at(std::int64_t row, std::int64_t column) const {
        return values + row * columns + column;
    }
    IMBREX_FN const Scale* scale_at(std::int64_t row, std::int64_t column) const {
        return scales + (row * columns + column) / weight_group_size;
    }
};

template <activation_quantisation Activations = activation_quantisation::none, class Scale = bf16>
struct int4_weight_rows {
    using scale = Scale;
    static constexpr activation_quantisation activations = Activations;
    static constexpr int values_per_byte = 2;

    const std::uint8_t* values = nullptr;
    const Scale* scales = nullptr;  // [n, k / 32]
    std::int64_t rows = 0, columns = 0;

    // `column` must be the first of a group.
    IMBREX_FN const std::uint8_t* at(std::int64_t row, std::int64_t column) const {
        return values + (row * columns + column) / 2;
    }
    IMBREX_FN const Scale* scale_at(std::int64_t row, std::int64_t column) const {
        return scales + (row * columns + column) / weight_group_size;
    }
};

// Packed if no stride is given.
template <class T>
unquantised_weight_rows<T> make_weight_rows(const T* values, std::int64_t rows, std::int64_t columns,
                                            std::int64_t row_stride = 0) {
    return {values, rows, columns, row_stride == 0 ? columns : row_stride};
}

}  // namespace imbrex
