// Random rows with poisoned gaps between and around them, which kernels must not touch, and tolerances against
// references in double.
#pragma once

#include <imbrex/kernels/row_view.hpp>

#include "worlds.hpp"

#include <cmath>
#include <cstring>
#include <vector>

namespace imbrex_test {

using namespace imbrex;

// Tokens x heads x columns, with `gap` elements after each head, twice as many after each token, and `before` elements
// in front.
struct row_shape {
    int tokens = 1;
    int heads = 1;
    int columns = 1;
    int gap = 0;
    int before = 0;

    std::int64_t head_stride() const { return columns + gap; }
    std::int64_t token_stride() const { return heads * head_stride() + 2 * gap; }
    std::size_t elements() const { return before + static_cast<std::size_t>(tokens) * token_stride() + gap; }
    std::size_t index(int row, int column) const {
        return before + row / heads * token_stride() + row % heads * head_stride() + column;
    }
    int rows() const { return tokens * heads; }
    template <class T>
    row_view<T> view(T* pointer) const {
        return {pointer + before, {tokens, heads, columns}, {token_stride(), head_stride()}};
    }
};

// All NaN.
template <class T>
std::vector<T> poisoned(std::size_t count) {
    std::vector<T> values(count);
    if (count > 0) std::memset(static_cast<void*>(values.data()), 0xff, count * sizeof(T));
    return values;
}

// Random rows with NaN in the gaps.
template <class T>
std::vector<T> random_rows(const row_shape& shape, std::uint32_t seed, float spread = 3) {
    std::vector<T> some(static_cast<std::size_t>(shape.rows()) * shape.columns), values = poisoned<T>(shape.elements());
    fill_random(some, seed, -spread, spread);
    for (int row = 0; row < shape.rows(); ++row) {
        for (int i = 0; i < shape.columns; ++i) {
            values[shape.index(row, i)] = some[static_cast<std::size_t>(row) * shape.columns + i];
        }
    }
    return values;
}

// Whether every element outside the rows still has the bits of NaN.
template <class T>
bool gaps_untouched(const row_shape& shape, const std::vector<T>& values) {
    std::vector<bool> of_row(values.size(), false);
    for (int row = 0; row < shape.rows(); ++row) {
        for (int i = 0; i < shape.columns; ++i) of_row[shape.index(row, i)] = true;
    }
    const std::vector<T> nan = poisoned<T>(1);
    bool same = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
        same = same && (of_row[i] || std::memcmp(&values[i], nan.data(), sizeof(T)) == 0);
    }
    return same;
}

// Half an ulp, relative, plus the error of float arithmetic.
template <class T>
double tolerance() {
    return (std::is_same_v<T, bf16> ? 1.0 / 256 : std::is_same_v<T, fp16> ? 1.0 / 2048 : 0.0) * 1.02 + 4e-6;
}

// `error`: of float arithmetic, where it is not relative to the result.
template <class T>
bool is_near(T found, double wanted, double error = 0) {
    const double value = convert<float>(found), tiny = std::is_same_v<T, fp16> ? 3.1e-8 : 1e-30;
    return std::fabs(value - wanted) <= tolerance<T>() * std::fabs(wanted) + error + tiny;
}

}  // namespace imbrex_test
