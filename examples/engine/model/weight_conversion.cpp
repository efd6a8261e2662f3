#include "engine/model/weight_conversion.hpp"

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

namespace imbrex::engine {

namespace {

constexpr auto group = static_cast<std::size_t>(weight_group_size);

template <class T>
void round_rows(std::span<const float> values, std::byte* to) {
    for (const float value : values) {
        const T rounded = convert<T>(value);
        std::memcpy(to, &rounded, sizeof rounded);
        to += sizeof rounded;
    }
}

// Rows of blocks: an fp16 scale, then the values of 32 elements.
template <class Value, template <class> class Output>
void quantise_to_blocks(std::span<const float> values, std::size_t bytes_of_values, std::byte* to) {
    for (std::size_t first = 0; first < values.size(); first += group) {
        Value quantised[group];
        fp16 scale;
        quantise_rows(Output<fp16>{quantised, &scale}, values.data() + first, 1, weight_group_size);
        std::memcpy(to, &scale, sizeof scale);
        std::memcpy(to + sizeof scale, quantised, bytes_of_values);
        to += sizeof scale + bytes_of_values;
    }
}

int five_bit_steps(float value, float scale) {
    return detail::nearest_multiple(value, scale, -16, 15);
}

double five_bit_error(std::span<const float> values, float scale) {
    double sum = 0;
    for (const float value : values) {
        const double error = double{value} - double{scale} * five_bit_steps(value, scale);
        sum += error * error;
    }
    return sum;
}

// The largest magnitude becomes 15 to 16.5 steps towards -16: the one with the least squared error, as for int4.
fp16 five_bit_scale(std::span<const float> values) {
    float extreme = 0;
    for (const float value : values) {
        if (std::fabs(value) > std::fabs(extreme)) extreme = value;
    }
    fp16 best = convert<fp16>(0.0f);
    double least = five_bit_error(values, 0);
    for (const float steps : {-16.5f, -16.0f, -15.5f, -15.0f, 15.0f}) {
        const fp16 scale = convert<fp16>(extreme / steps);
        if (!std::isfinite(convert<float>(scale))) continue;
        const double error = five_bit_error(values, convert<float>(scale));
        if (error < least) least = error, best = scale;
    }
    return best;
}

// q5_0: an fp16 scale, the high bits of 32 elements, and their low bits as in q4_0.
void quantise_to_five_bits(std::span<const float> values, std::byte* to) {
    detail::require_finite_row(values.data(), 0, static_cast<std::int64_t>(values.size()));
    for (; !values.empty(); values = values.subspan(group), to += 22) {
        const std::span<const float> own = values.first(group);
        const fp16 scale = five_bit_scale(own);
        std::uint32_t high = 0;
        std::uint8_t low[group / 2]{};
        for (std::size_t i = 0; i < group; ++i) {
            const auto steps = static_cast<std::uint32_t>(five_bit_steps(own[i], convert<float>(scale)) + 16);
            high |= (steps >> 4) << i;
            low[i % 16] = static_cast<std::uint8_t>(low[i % 16] | (steps & 15) << (i < 16 ? 0 : 4));
        }
        std::memcpy(to, &scale, sizeof scale);
        std::memcpy(to + 2, &high, sizeof high);
        std::memcpy(to + 6, low, sizeof low);
    }
}

void convert_row(std::span<const float> values, weight_type type, std::byte* to) {
    switch (type) {
        case weight_type::q8_0:
            return quantise_to_blocks<std::int8_t, int8_rows_output>(values, 32, to);
        case weight_type::q5_0:
            return quantise_to_five_bits(values, to);
        case weight_type::q4_0:
            return quantise_to_blocks<std::uint8_t, int4_rows_output>(values, 16, to);
        case weight_type::f16:
            return round_rows<fp16>(values, to);
        case weight_type::bf16:
            return round_rows<bf16>(values, to);
        default:
            return round_rows<float>(values, to);
    }
}

}  // namespace

bool can_convert_to(weight_type type) {
    using enum weight_type;
    return type == f32 || type == f16 || type == bf16 || type == q4_0 || type == q5_0 || type == q8_0;
}

std::size_t row_bytes(weight_type type, std::int64_t columns) {
    return static_cast<std::size_t>(*byte_size(type, std::vector<std::int64_t>{columns}));
}

void convert_rows(const weight& from, std::int64_t first, std::int64_t rows, weight_type type, std::byte* to) {
    require(can_convert_to(type), from.name, ": type ", name_of(type),
            "; weights can be converted to f32, f16, bf16, q4_0, q5_0 and q8_0");
    const std::int64_t columns = from.row_elements();
    const std::size_t bytes = row_bytes(type, columns);
    hw::thread_pool::shared().for_each(static_cast<int>(rows), 0, [&](int row) {
        std::vector<float> values(static_cast<std::size_t>(columns));
        to_floats(from, first + row, 1, values);
        try {
            convert_row(values, type, to + static_cast<std::size_t>(row) * bytes);
        } catch (const error& failure) {
            require(false, from.name, ": row ", first + row, ": ", failure.what());
        }
    });
}

}  // namespace imbrex::engine
