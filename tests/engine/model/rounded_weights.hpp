// Weights rounded to a format of the engine with the library's own quantisation, as reference for GEMM tests.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/weight_format.hpp"

namespace imbrex::engine::test {

// Rounds a matrix. For grouped formats, rows that are not a multiple of the group stay unrounded.
inline void round_matrix(weight_format format, std::int64_t rows, std::int64_t columns, std::vector<float>& values) {
    if (format == weight_format::bf16) {
        for (float& value : values) value = bf16::decode(bf16::encode(value));
    } else if (format == weight_format::f16) {
        for (float& value : values) value = fp16::decode(fp16::encode(value));
    } else if (format == weight_format::e4m3) {
        std::vector<e4m3> numbers(values.size());
        std::vector<float> scales(static_cast<std::size_t>(rows));
        quantise_rows(e4m3_rows_output{numbers.data(), scales.data()}, values.data(), rows, columns);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = convert<float>(numbers[i]) * scales[i / static_cast<std::size_t>(columns)];
    } else if (columns % weight_group_size == 0) {
        std::vector<bf16> scales(group_scale_count(rows, columns));
        std::vector<int> numbers(values.size());
        if (format == weight_format::int8) {
            std::vector<std::int8_t> bytes(int8_bytes(rows, columns));
            quantise_rows(int8_rows_output{bytes.data(), scales.data()}, values.data(), rows, columns);
            std::ranges::copy(bytes, numbers.begin());
        } else {
            std::vector<std::uint8_t> bytes(int4_bytes(rows, columns));
            quantise_rows(int4_rows_output{bytes.data(), scales.data()}, values.data(), rows, columns);
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                const std::size_t place = i / 16 * 32 + i % 16;
                numbers[place] = (bytes[i] & 15) - 8;
                numbers[place + 16] = (bytes[i] >> 4) - 8;
            }
        }
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(numbers[i]) * convert<float>(scales[i / weight_group_size]);
    }
}

}  // namespace imbrex::engine::test
