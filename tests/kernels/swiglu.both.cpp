// SwiGLU against loops in double: gate and up in one array or two, all activations, rows of any length and alignment.
// Gaps between rows stay untouched.
#include <imbrex/kernels/swiglu.hpp>

#include "kernels/elementwise.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

double in_double(activation::silu, double x) {
    return x / (1 + std::exp(-x));
}
double in_double(activation::gelu_tanh, double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double in_double(activation::relu, double x) {
    return x > 0 ? x : 0;
}

// Approximate exponentials, and cancellation where the activation is close to 0.
template <class T>
bool is_gated(T found, double wanted, double gate, double up) {
    const double value = convert<float>(found);
    return std::fabs(value - wanted) <= tolerance<T>() * std::fabs(wanted) + 2e-6 * std::fabs(gate * up) + 3.1e-8;
}

template <class T, class Activation>
void check_results(const row_shape& in, const row_shape& out, const std::vector<T>& gate, const std::vector<T>& up,
                   const std::vector<T>& found) {
    bool right = true;
    for (int row = 0; row < in.rows(); ++row) {
        for (int i = 0; i < in.columns; ++i) {
            const double g = convert<float>(gate[in.index(row, i)]), u = convert<float>(up[in.index(row, i)]);
            right = right && is_gated(found[out.index(row, i)], in_double(Activation{}, g) * u, g, u);
        }
    }
    CHECK(right);
    CHECK(gaps_untouched(out, found));
}

// Two arrays. In place: `out` aliases the gate.
template <class T, class Activation = activation::silu>
void check_two(const row_shape& in, const row_shape& result, bool in_place = false) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(in.tokens);
        CAPTURE(in.columns);
        buffer<T> gate(where, in.elements()), up(where, in.elements()), out(where, result.elements());
        gate.values = random_rows<T>(in, 1, 9);
        up.values = random_rows<T>(in, 2);
        out.values = poisoned<T>(result.elements());
        const std::vector<T> before = gate.values;
        T* const from = gate.upload();
        swiglu_activation<T, Activation>::launch(where, {.gate = in.view<const T>(from),
                                                         .up = in.view<const T>(up.upload()),
                                                         .out = in_place ? in.view(from) : result.view(out.upload())});
        gate.download();
        out.download();
        check_results<T, Activation>(in, in_place ? in : result, before, up.values,
                                     in_place ? gate.values : out.values);
    }
}

// One array [rows, 2 n], gate first.
template <class T, class Activation = activation::silu>
void check_one(int rows, int columns, int gap = 0) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(rows);
        CAPTURE(columns);
        const row_shape in{rows, 1, 2 * columns, gap}, result{rows, 1, columns};
        buffer<T> both(where, in.elements()), out(where, result.elements());
        both.values = random_rows<T>(in, 1, 5);
        out.values = poisoned<T>(result.elements());
        const T* const from = both.upload();
        const std::int64_t stride = gap == 0 ? 0 : in.token_stride();
        swiglu_activation<T, Activation>::launch(where, {.gate = gate_of(from, rows, columns, stride),
                                                         .up = up_of(from, rows, columns, stride),
                                                         .out = as_rows(out.upload(), rows, columns)});
        out.download();
        bool right = true;
        for (int row = 0; row < rows; ++row) {
            for (int i = 0; i < columns; ++i) {
                const double g = convert<float>(both.values[in.index(row, i)]);
                const double u = convert<float>(both.values[in.index(row, columns + i)]);
                right = right && is_gated(out.values[result.index(row, i)], in_double(Activation{}, g) * u, g, u);
            }
        }
        CHECK(right);
        CHECK(gaps_untouched(result, out.values));
    }
}

}  // namespace

TEST_CASE("SwiGLU of one array, rows of any length") {
    for (const int columns : {8, 64, 128, 248, 256, 264, 1000, 1024, 1032, 2816, 4096}) check_one<bf16>(5, columns);
    for (const int columns : {1, 3, 100, 257, 1023}) check_one<bf16>(3, columns);
    for (const int rows : {1, 2, 17, 67}) {
        check_one<fp16>(rows, 96);
        check_one<float>(rows, 40, 4);
        check_one<bf16>(rows, 1088, 8);
    }
}

TEST_CASE("SwiGLU of two arrays, strided rows, and in place") {
    check_two<bf16>({5, 1, 512, 8, 8}, {5, 1, 512, 16});
    check_two<bf16>({5, 3, 64, 8, 8}, {5, 3, 64});
    check_two<bf16>({5, 1, 512, 1, 0}, {5, 1, 512, 3, 1});
    check_two<fp16>({9, 1, 72, 8}, {}, true);
    check_two<float>({9, 1, 1500, 4}, {}, true);
    check_two<float>({9, 1, 33, 5, 3}, {}, true);
}

TEST_CASE("GLU with other activations") {
    check_one<bf16, activation::gelu_tanh>(5, 264);
    check_one<float, activation::gelu_tanh>(5, 33);
    check_two<fp16, activation::gelu_tanh>({3, 1, 1024}, {3, 1, 1024});
    check_one<bf16, activation::relu>(2, 48);
}

TEST_CASE("SwiGLU of an empty problem does nothing; invalid problems are rejected") {
    using swiglu_launch = swiglu_activation<bf16>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        swiglu_launch::launch(where, {});
        swiglu_launch::launch(where, {.gate = gate_of<const bf16>(nullptr, 0, 64),
                                      .up = up_of<const bf16>(nullptr, 0, 64),
                                      .out = as_rows<bf16>(nullptr, 0, 64)});
        buffer<bf16> some(where, 4 * 64);
        bf16* const memory = some.upload();
        const swiglu_problem<bf16> good{.gate = gate_of<const bf16>(memory, 2, 64),
                                        .up = up_of<const bf16>(memory, 2, 64),
                                        .out = gate_of(memory, 2, 64)};
        const auto refused = [&](auto change) {
            swiglu_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { swiglu_launch::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.up.pointer = nullptr; }) == "up.pointer: null; 2 x 1 x 64 elements are needed");
        CHECK(refused([](auto& p) { --p.up.extents.given[0]; }) ==
              "up.extents[0]: 1; gate has 2 tokens, and it must have as many");
        CHECK(refused([](auto& p) { ++p.out.extents.given[2]; }) ==
              "out.extents[2]: 65; gate has 64 columns, and it must have as many");
        CHECK(refused([](auto& p) { p.out.strides.given[0] = 0; }) ==
              "out.strides[0]: 0; tokens of results lie at least the 64 elements of a row apart");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("SwiGLU has no hazard in any schedule and no synchronisation to mutate") {
    using swiglu_launch = swiglu_activation<bf16>;
    using kernel = swiglu_launch::kernel<1, 256, row_alignment::aligned>;
    std::vector<bf16> both(6 * 512), out(6 * 256);
    fill_random(both, 1);
    const auto args = swiglu_launch::arguments_of<kernel>({.gate = gate_of<const bf16>(both.data(), 6, 256),
                                                           .up = up_of<const bf16>(both.data(), 6, 256),
                                                           .out = as_rows(out.data(), 6, 256)});
    check_without_synchronisation<kernel>(kernel::grid_of(args), args);
}
#endif
