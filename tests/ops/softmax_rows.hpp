// Rows of scores for tests of softmax, and what should become of them.
#pragma once

#include <ops/tools.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex_test {

// Among the rows are some that are masked altogether, in part, at their beginning or at their end, and some with very
// large, very small and equal elements.
inline void fill_scores(std::vector<float>& values, int rows, int columns, std::uint32_t seed) {
    fill_random(values, seed, -5.0f, 5.0f);
    for (int row = 0; row < rows; ++row) {
        float* one = values.data() + static_cast<std::size_t>(row) * columns;
        for (int column = 0; column < columns; ++column) {
            const int kind = row % 11;
            if (kind == 1) one[column] = imbrex::minus_infinity;
            if (kind == 2 && column % 3 != 0) one[column] = imbrex::minus_infinity;
            if (kind == 3 && column < columns / 2) one[column] = imbrex::minus_infinity;
            if (kind == 4 && column > columns / 3) one[column] = imbrex::minus_infinity;
            if (kind == 5) one[column] *= 2000.0f;   // one weight takes all
            if (kind == 6) one[column] += 10000.0f;  // far from zero, close together
            if (kind == 7) one[column] -= 10000.0f;
            if (kind == 8) one[column] *= 1e-30f;
            if (kind == 9) one[column] = -7.0f;
            if (kind == 10 && column != columns - 1) one[column] = imbrex::minus_infinity;
        }
    }
}

// The weights of one row, and the base-2 logarithm of the sum of its exponentials.
struct row_of_probabilities {
    std::vector<double> weights;
    double lse2;
    double largest;  // magnitude of a scaled score: what float rounds in proportion to
};
inline row_of_probabilities exp_and_sum(const float* scores, int columns, double scale) {
    double most = -INFINITY, largest = 0;
    for (int i = 0; i < columns; ++i) {
        most = std::max(most, scale * scores[i]);
        if (std::isfinite(scores[i])) largest = std::max(largest, std::fabs(scale * scores[i]));
    }
    row_of_probabilities result{std::vector<double>(columns, 0.0), -INFINITY, largest};
    if (most == -INFINITY) return result;
    double sum = 0;
    for (int i = 0; i < columns; ++i) sum += result.weights[i] = std::exp(scale * scores[i] - most);
    for (double& weight : result.weights) weight /= sum;
    result.lse2 = (most + std::log(sum)) / std::log(2.0);
    return result;
}

// A float's rounding of scaled scores, as a relative error of their exponentials, and the approximations' own.
inline double tolerance(double largest) {
    return 4e-6 + 2.5e-7 * largest;
}

}  // namespace imbrex_test
