// Tests of RMSNorm and LayerNorm: the rows of a problem, its results against a reference in double, and the errors of
// both launchers.
#pragma once

#include <imbrex/kernels/row_view.hpp>

#include "kernels/elementwise.hpp"
#include "worlds.hpp"

#include <cmath>
#include <cstring>
#include <vector>

namespace imbrex_test {

struct norm_case {
    row_shape rows;
    bool residual = false;
    bool in_place = false;
    float epsilon = 1e-5f;
    float mean = 0;    // of x
    float spread = 3;  // x and residual are within this of their means
    bool weight = true;
    bool bias = true;
};

// One element of a result, and by how much float arithmetic may miss it beyond the tolerance of its type.
struct expected_element {
    double value;
    double error = 0;
};

template <class T>
class norm_rows_trial {
  public:
    norm_rows_trial(world where, const norm_case& given, std::uint32_t seed)
        : given(given),
          x(where, given.rows.elements()),
          residual(where, given.rows.elements()),
          out(where, given.rows.elements()) {
        x.values = random_rows<T>(given.rows, seed, given.spread);
        for (int row = 0; row < given.rows.rows(); ++row) {
            for (int i = 0; i < given.rows.columns; ++i) {
                T& element = x.values[given.rows.index(row, i)];
                element = convert<T>(convert<float>(element) + given.mean);
            }
        }
        residual.values = random_rows<T>(given.rows, seed + 1, given.spread);
        out.values = poisoned<T>(given.rows.elements());
    }

    template <class Problem>
    Problem upload() {
        x_before_ = x.values;
        residual_before_ = residual.values;
        Problem p{};
        p.x = given.rows.view<const T>(x.upload());
        p.out = given.rows.view(given.in_place ? x.upload() : out.upload());
        p.epsilon = given.epsilon;
        if (given.residual) p.residual = given.rows.view(residual.upload());
        return p;
    }

    // reference(elements of a row): the expected_element of each.
    template <class Reference>
    void check(const Reference& reference) {
        x.download();
        residual.download();
        out.download();
        const row_shape& rows = given.rows;
        const std::vector<T>& results = given.in_place ? x.values : out.values;
        bool sums_right = true, results_right = true;
        for (int row = 0; row < rows.rows(); ++row) {
            std::vector<double> values(rows.columns);
            for (int i = 0; i < rows.columns; ++i) {
                const std::size_t at = rows.index(row, i);
                T value = x_before_[at];
                if (given.residual) {
                    value = convert<T>(convert<float>(value) + convert<float>(residual_before_[at]));
                    sums_right = sums_right && std::memcmp(&value, &residual.values[at], sizeof value) == 0;
                }
                values[i] = convert<float>(value);
            }
            const std::vector<expected_element> expected = reference(values);
            for (int i = 0; i < rows.columns; ++i) {
                results_right =
                    results_right && is_near(results[rows.index(row, i)], expected[i].value, expected[i].error);
            }
        }
        CHECK(sums_right);
        CHECK(results_right);
        CHECK(gaps_untouched(rows, results));
        if (given.residual) CHECK(gaps_untouched(rows, residual.values));
    }

    const norm_case given;
    buffer<T> x, residual, out;

  private:
    std::vector<T> x_before_, residual_before_;
};

// Launches each case in every world. Trial: upload() and check().
template <class Norm, class Trial>
void check_norm_trial(const norm_case& given, std::uint32_t seed) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.rows.tokens);
        CAPTURE(given.rows.heads);
        CAPTURE(given.rows.columns);
        CAPTURE(given.rows.gap);
        CAPTURE(given.residual);
        CAPTURE(given.mean);
        Trial trial(where, given, seed);
        Norm::launch(where, trial.upload());
        trial.check();
    }
}

// The errors of x, out, residual and epsilon. refused(change): the message for a problem with this change; it has 4
// tokens, 2 heads, 64 columns and a residual.
template <class Refused>
void check_norm_errors(const Refused& refused) {
    CHECK(refused([](auto& p) { p.x.pointer = nullptr; }) == "x.pointer: null; 4 x 2 x 64 elements are needed");
    CHECK(refused([](auto& p) { p.x.extents.given[0] = -1; }) ==
          "x.extents[0]: -1; the number of tokens is from 0 to 2147418112");
    CHECK(refused([](auto& p) { p.x.extents.given[0] = p.x.extents.given[1] = 65536; }) ==
          "x.extents[0], x.extents[1]: 65536, 65536; at most 2147418112 rows are allowed");
    CHECK(refused([](auto& p) { --p.out.extents.given[2]; }) ==
          "out.extents[2]: 63; x has 64 columns, and it must have as many");
    CHECK(refused([](auto& p) { ++p.residual.extents.given[1]; }) ==
          "residual.extents[1]: 3; x has 2 heads, and it must have as many");
    CHECK(refused([](auto& p) { p.residual.pointer = nullptr; }) ==
          "residual.pointer: null; 4 x 2 x 64 elements are needed");
    CHECK(refused([](auto& p) { p.out.strides.given[0] = 63; }) ==
          "out.strides[0]: 63; tokens of results lie at least the 64 elements of a row apart");
    CHECK(refused([](auto& p) { p.residual.strides.given[1] = 0; }) ==
          "residual.strides[1]: 0; heads of results lie at least the 64 elements of a row apart");
    CHECK(refused([](auto& p) { p.epsilon = -1; }) == "epsilon: -1; must be finite and not negative");
    CHECK(refused([](auto& p) { p.epsilon = NAN; }) == "epsilon: nan; must be finite and not negative");
    CHECK(refused([](auto& p) {
              p.out = p.residual;
          }).ends_with("; must differ from residual.pointer, which is written too"));
}

}  // namespace imbrex_test
