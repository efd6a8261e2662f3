// Quantises rows of floats to int8, int4 or e4m3 weights (core/weight_rows.hpp) for `linear`, on the host, once.
//
//     std::vector<std::int8_t> values(int8_bytes(n, k));
//     std::vector<bf16> scales(group_scale_count(n, k));
//     quantise_rows(int8_rows_output{values.data(), scales.data()}, w, n, k);
//
// Quantisation is symmetric: zero stays zero. The scale is rounded to its type first and values to multiples of the
// rounded scale, so the rounding of the scale adds no error. int8 and e4m3 map the largest magnitude of a group, or
// row, to the largest value, with the scale rounded up if needed so that nothing saturates; an int8 is then at most
// half a scale from its number. int4 has only eight steps to a side, and clipping a little pays off: among scales
// around that one, of either sign since -8 has no +8, it takes the one with the least squared error.
//
// A weight that is not finite throws imbrex::error with its row and column.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/weight_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace imbrex {

// The number of elements needed for n rows of k.
inline std::size_t int8_bytes(std::int64_t n, std::int64_t k) {
    return static_cast<std::size_t>(n * k);
}
inline std::size_t int4_bytes(std::int64_t n, std::int64_t k) {
    return static_cast<std::size_t>(n * k / 2);
}
inline std::size_t group_scale_count(std::int64_t n, std::int64_t k) {
    return static_cast<std::size_t>(n * (k / weight_group_size));
}

// Where quantised rows are written.
template <class Scale>
struct int8_rows_output {
    std::int8_t* values;
    Scale* scales;
};
template <class Scale>
int8_rows_output(std::int8_t*, Scale*) -> int8_rows_output<Scale>;

template <class Scale>
struct int4_rows_output {
    std::uint8_t* values;
    Scale* scales;
};
template <class Scale>
int4_rows_output(std::uint8_t*, Scale*) -> int4_rows_output<Scale>;

struct e4m3_rows_output {
    e4m3* values;
    float* scales;
};

namespace detail {

inline void require_finite_row(const float* row, std::int64_t number, std::int64_t k) {
    for (std::int64_t i = 0; i < k; ++i) {
        require(std::isfinite(row[i]), "weights[", number, ", ", i, "]: ", row[i], "; weights are finite");
    }
}

inline void require_rows_to_quantise(const float* from, std::int64_t n, std::int64_t k, bool places, bool groups) {
    require(n >= 0, "n: ", n, "; must not be negative");
    require(k >= 0, "k: ", k, "; must not be negative");
    require(!groups || k % weight_group_size == 0, "k: ", k, "; must be a multiple of the group size, ",
            weight_group_size);
    require(from != nullptr || n * k == 0, "weights: null; ", n, " x ", k, " numbers are needed");
    require(places || n * k == 0, "values, scales: null; there must be memory for ", n, " x ", k, " numbers");
}

inline float abs_max_of(const float* from, std::int64_t count) {
    float abs_max = 0;
    for (std::int64_t i = 0; i < count; ++i) abs_max = std::max(abs_max, std::fabs(from[i]));
    return abs_max;
}

// The scale nearest to the wanted one, or the next larger one if `steps` of it do not reach far enough; saturates at
// the largest value of its type.
template <class Scale>
float scale_that_reaches(float wanted, float reach, float steps) {
    const float highest = convert<float>(highest_of<Scale>());
    const float nearest = std::min(convert<float>(convert<Scale>(wanted)), highest);
    if (nearest * steps >= reach || nearest == highest) return nearest;
    if constexpr (std::is_same_v<Scale, float>) {
        return std::nextafter(nearest, highest);
    } else {
        // Bits of positive floats order like the values.
        const Scale one = convert<Scale>(nearest);
        return convert<float>(Scale::from_bits(static_cast<decltype(one.bits)>(one.bits + 1)));
    }
}

inline std::int32_t nearest_multiple(float value, float scale, std::int32_t lowest, std::int32_t highest) {
    // In double: a quotient of floats is rounded, and half a step might become more.
    const double steps = scale == 0 ? 0.0 : std::nearbyint(static_cast<double>(value) / static_cast<double>(scale));
    return static_cast<std::int32_t>(std::clamp(steps, static_cast<double>(lowest), static_cast<double>(highest)));
}

// In float, without divisions and vectorisable: it only ranks scales and rounds nothing.
inline float squared_error(const float* group, float scale) {
    // A float of this size has no fraction bits: adding it rounds to an integer, which is in the bits of the sum.
    constexpr float anchor = 12582912.0f;
    const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
    float errors[weight_group_size];
    for (int i = 0; i < weight_group_size; ++i) {
        const std::uint32_t sum = bits_as<std::uint32_t>(group[i] * inverse + anchor) - bits_as<std::uint32_t>(anchor);
        const auto steps = static_cast<float>(clamp_integer(static_cast<std::int32_t>(sum), -8, 7));
        const float error = group[i] - scale * steps;
        errors[i] = error * error;
    }
    for (int i = 0; i < weight_group_size / 2; ++i) errors[i] += errors[i + weight_group_size / 2];
    for (int i = 0; i < weight_group_size / 4; ++i) errors[i] += errors[i + weight_group_size / 4];
    float sum = 0;
    for (int i = 0; i < weight_group_size / 4; ++i) sum += errors[i];
    return sum;
}

// Scales for which the largest magnitude becomes 6.5 to 9 steps: towards -8, with the sign that takes it there, and
// towards +7.
template <class Scale>
float best_int4_scale(const float* group) {
    float extreme = 0;
    for (int i = 0; i < weight_group_size; ++i) {
        if (std::fabs(group[i]) > std::fabs(extreme)) extreme = group[i];
    }
    if (extreme == 0) return 0;
    // By a power of two, so that squares neither overflow nor underflow.
    int exponent = 0;
    std::frexp(extreme, &exponent);
    float about_one[weight_group_size];
    for (int i = 0; i < weight_group_size; ++i) about_one[i] = std::ldexp(group[i], -exponent);
    float best = 0;
    float least = squared_error(about_one, 0.0f);
    for (int eighths = 52; eighths <= 72; eighths += 2) {
        for (const float side : {-1.0f, 1.0f}) {
            const float scale = convert<float>(convert<Scale>(side * extreme / (static_cast<float>(eighths) / 8)));
            if (!std::isfinite(scale)) continue;
            const float error = squared_error(about_one, std::ldexp(scale, -exponent));
            if (error < least) least = error, best = scale;
        }
    }
    return best;
}

}  // namespace detail

// Rows are `row_stride` floats apart; packed if none is given.
template <class Scale>
void quantise_rows(const int8_rows_output<Scale>& to, const float* from, std::int64_t n, std::int64_t k,
                   std::int64_t row_stride = 0) {
    detail::require_rows_to_quantise(from, n, k, to.values != nullptr && to.scales != nullptr, true);
    for (std::int64_t row = 0; row < n; ++row) {
        const float* const own = from + row * (row_stride == 0 ? k : row_stride);
        detail::require_finite_row(own, row, k);
        for (std::int64_t first = 0; first < k; first += weight_group_size) {
            const float abs_max = detail::abs_max_of(own + first, weight_group_size);
            const float scale = detail::scale_that_reaches<Scale>(abs_max / 127, abs_max, 127.5f);
            to.scales[(row * k + first) / weight_group_size] = convert<Scale>(scale);
            for (int i = 0; i < weight_group_size; ++i) {
                to.values[row * k + first + i] =
                    static_cast<std::int8_t>(detail::nearest_multiple(own[first + i], scale, -127, 127));
            }
        }
    }
}

template <class Scale>
void quantise_rows(const int4_rows_output<Scale>& to, const float* from, std::int64_t n, std::int64_t k,
                   std::int64_t row_stride = 0) {
    detail::require_rows_to_quantise(from, n, k, to.values != nullptr && to.scales != nullptr, true);
    constexpr int half = weight_group_size / 2;
    for (std::int64_t row = 0; row < n; ++row) {
        const float* const own = from + row * (row_stride == 0 ? k : row_stride);
        detail::require_finite_row(own, row, k);
        for (std::int64_t first = 0; first < k; first += weight_group_size) {
            const float scale = detail::best_int4_scale<Scale>(own + first);
            to.scales[(row * k + first) / weight_group_size] = convert<Scale>(scale);
            for (int i = 0; i < half; ++i) {
                const int low = detail::nearest_multiple(own[first + i], scale, -8, 7) + 8;
                const int high = detail::nearest_multiple(own[first + half + i], scale, -8, 7) + 8;
                to.values[(row * k + first) / 2 + i] = static_cast<std::uint8_t>(low | (high << 4));
            }
        }
    }
}

inline void quantise_rows(const e4m3_rows_output& to, const float* from, std::int64_t n, std::int64_t k,
                          std::int64_t row_stride = 0) {
    detail::require_rows_to_quantise(from, n, k, to.values != nullptr && to.scales != nullptr, false);
    for (std::int64_t row = 0; row < n && k > 0; ++row) {
        const float* const own = from + row * (row_stride == 0 ? k : row_stride);
        detail::require_finite_row(own, row, k);
        const float abs_max = detail::abs_max_of(own, k);
        // A row too small for a normal scale becomes zeros.
        const float scale = abs_max / 448 >= 0x1p-126f ? abs_max / 448 : 0.0f;
        to.scales[row] = scale;
        for (std::int64_t i = 0; i < k; ++i) to.values[row * k + i] = convert<e4m3>(scale == 0 ? 0.0f : own[i] / scale);
    }
}

}  // namespace imbrex
