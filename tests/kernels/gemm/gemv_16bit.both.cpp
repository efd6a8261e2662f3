// The GEMV with up to 8 rows and 16-bit weights, with and without fused RMSNorm, compared with float64: any size, bias,
// GLU, residual; unsupported problems fall back or are rejected. No hazard in any schedule, and every mutation of the
// synchronisation is detected.
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm/gemv_16bit.hpp>
#include <imbrex/kernels/rms_norm_gemm.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Rows, weights [n, k] (2 n rows with a GLU), and the result.
template <class In, class Out>
struct product_data {
    int m, n, k;
    buffer<In> a, b;
    buffer<Out> out;

    product_data(world where, int m, int n, int k, bool gated = false)
        : m(m),
          n(n),
          k(k),
          a(where, static_cast<std::size_t>(m) * k),
          b(where, static_cast<std::size_t>(n) * (gated ? 2 : 1) * k),
          out(where, static_cast<std::size_t>(m) * n, convert<Out>(NAN)) {
        fill_random(a.values, 1);
        fill_random(b.values, 2);
    }
    gemm_problem<In, Out> problem() { return {m, n, k, {a.upload()}, {b.upload()}, {out.upload()}}; }

    // 1 / root mean square of a row.
    double inverse(int row, double epsilon) const {
        double sum = 0;
        for (int i = 0; i < k; ++i) {
            const double x = convert<float>(a.values[row * k + i]);
            sum += x * x;
        }
        return 1 / std::sqrt(sum / k + epsilon);
    }
    double expected(int row, int column) const {
        double sum = 0;
        for (int i = 0; i < k; ++i) {
            sum +=
                static_cast<double>(convert<float>(a.values[row * k + i])) * convert<float>(b.values[column * k + i]);
        }
        return sum;
    }
    // The largest error, relative to the largest expected magnitude.
    template <class Expected>
    double worst(const Expected& value) {
        out.download();
        double error = 0, largest = 0;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                const double wanted = value(row, column);
                const double one = std::abs(convert<float>(out.values[row * n + column]) - wanted);
                error = one <= error ? error : std::isnan(one) ? INFINITY : one;
                largest = std::max(largest, std::abs(wanted));
            }
        }
        return error / largest;
    }
};

template <class Out>
constexpr double rounding = std::is_same_v<Out, float> ? 1e-6 : 4e-3;

// gemm also has kernels for problems that are no GEMV, so most tests launch the GEMV directly.
template <class In, class Out>
using streamed = gemm<In, Out, gemm_options{.b = matrix_layout::column_major, .prefetch = pdl_prefetch::weights}>;

template <class In, class Out>
void check_plain(int m, int n, int k) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        product_data<In, Out> data(where, m, n, k);
        const auto p = data.problem();
        using product = gemv_16bit<In, Out, epilogue::identity>;
        REQUIRE(product::can_implement(p));
        product::launch(where, p, {}, {}, nullptr);
        CHECK(data.worst([&](int row, int column) { return data.expected(row, column); }) <= rounding<Out>);
    }
}

double silu_of(double x) {
    return x / (1 + std::exp(-x));
}

}  // namespace

TEST_CASE_TEMPLATE("16-bit GEMV: every size", In, bf16, fp16) {
    check_plain<In, float>(1, 1, 8);
    check_plain<In, float>(1, 32, 64);
    check_plain<In, In>(8, 33, 72);
    check_plain<In, float>(5, 200, 1000);
    check_plain<In, float>(7, 40, 2056);  // K exceeds half of an SM's shared memory
    check_plain<In, In>(3, 130, 520);
}

TEST_CASE("16-bit GEMV: a large matrix uses larger tiles") {
    for (const world where : worlds()) {
        if (where == world::host_checked) continue;  // it would take long
        CAPTURE(name_of(where));
        product_data<bf16, float> data(where, 2, 3080, 4096);
        CHECK(streamed<bf16, float>::choice(where, data.problem()) == gemm_kernel_kind::gemv);
        streamed<bf16, float>::launch(where, data.problem());
        CHECK(data.worst([&](int row, int column) { return data.expected(row, column); }) <= 2e-6);
    }
}

TEST_CASE("16-bit GEMV: GLU, bias and residual") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        {
            product_data<bf16, float> data(where, 3, 128, 200, true);
            const auto p = data.problem();
            REQUIRE(gemv_16bit<bf16, float, epilogue::swiglu>::can_implement(p));
            gemv_16bit<bf16, float, epilogue::swiglu>::launch(where, p, {}, {}, nullptr);
            CHECK(data.worst([&](int row, int column) {
                return silu_of(data.expected(row, column)) * data.expected(row, data.n + column);
            }) <= 1e-5);
        }
        {
            product_data<bf16, bf16> data(where, 4, 96, 136);
            fill_random(data.out.values, 3);
            const std::vector<bf16> before = data.out.values;
            const auto p = data.problem();
            const gemm_view<const bf16> residual =
                gemm_views<bf16, bf16, matrix_layout::row_major, matrix_layout::column_major, false>(p).out;
            REQUIRE(gemv_16bit<bf16, bf16, epilogue::residual<bf16>>::can_implement(p));
            gemv_16bit<bf16, bf16, epilogue::residual<bf16>>::launch(where, p, {residual}, {}, nullptr);
            CHECK(data.worst([&](int row, int column) {
                return data.expected(row, column) + convert<float>(before[row * data.n + column]);
            }) <= rounding<bf16>);
        }
    }
}

TEST_CASE("problems that the 16-bit GEMV does not support use another kernel") {
    const world where = worlds().front();
    product_data<bf16, float> data(where, 9, 64, 64);
    auto p = data.problem();
    CHECK(streamed<bf16, float>::choice(where, p) == gemm_kernel_kind::small_m_16);
    p.m = 8;
    CHECK(streamed<bf16, float>::choice(where, p) == gemm_kernel_kind::gemv);
    using any = gemm<bf16, float, gemm_options{.b = matrix_layout::column_major}>;
    CHECK(any::choice(where, p) == gemm_kernel_kind::small_m_16);
    p.k = 60;
    CHECK(streamed<bf16, float>::choice(where, p) == gemm_kernel_kind::ampere_class);
}

TEST_CASE_TEMPLATE("fused RMSNorm + GEMM", In, bf16, fp16) {
    constexpr float epsilon = 1e-3f;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int k : {8, 200, 1024, 4104}) {
            CAPTURE(k);
            using product = rms_norm_gemm<In, float, epilogue::bias<float>>;
            product_data<In, float> data(where, k == 200 ? 8 : 3, 72, k);
            buffer<float> bias(where, 72);
            fill_random(bias.values, 4);
            const auto p = data.problem();
            REQUIRE(product::can_implement(where, p));
            product::launch(where, p, {{bias.upload(), 72}}, {.epsilon = epsilon});
            CHECK(data.worst([&](int row, int column) {
                return data.expected(row, column) * data.inverse(row, epsilon) + bias.values[column];
            }) <= 1e-5);
        }
        using product = rms_norm_gemm<In, In, epilogue::swiglu>;
        product_data<In, In> data(where, 2, 64, 96, true);
        product::launch(where, data.problem(), {}, {.epsilon = epsilon});
        CHECK(data.worst([&](int row, int column) {
            const double inverse = data.inverse(row, epsilon);
            return silu_of(inverse * data.expected(row, column)) * inverse * data.expected(row, data.n + column);
        }) <= rounding<In>);
    }
}

TEST_CASE("fused RMSNorm + GEMM rejects invalid arguments") {
    const world where = worlds().front();
    using product = rms_norm_gemm<bf16, float>;
    product_data<bf16, float> data(where, 9, 64, 64);
    auto p = data.problem();
    const auto refusal = [&](float epsilon = 0) {
        return error_message_of([&] { product::launch(where, p, {}, {epsilon}); });
    };
    CHECK(refusal().starts_with("m, n, k: 9, 64, 64; must have 1 to 8 rows"));
    p.m = 8;
    CHECK(refusal(-1).starts_with("epsilon: -1;"));
    CHECK(refusal(NAN).starts_with("epsilon: nan;"));
    p.k = 60;
    CHECK(refusal().starts_with("m, n, k: 8, 64, 60;"));
    p.k = -1;
    CHECK(refusal() == "k: -1; k must not be negative");
    p.k = 64;
    p.m = 0;
    CHECK(refusal() == "no error");
    CHECK(!rms_norm_gemm<bf16, float, epilogue::swiglu>::can_implement(where, {1, 32, 64, p.a, p.b, p.out}));
}

#if !defined(__CUDACC__)
namespace {

template <class Input, int Columns, gemv_shape Shape>
void check_silent_and_mutate(const char* name) {
    using weights = unquantised_weights<bf16, Columns>;
    using kernel = gemv_kernel<weights, bf16, epilogue::identity, 8, Shape, Input>;
    product_data<bf16, bf16> data(world::host, 5, 72, 1024);
    const auto p = data.problem();
    const auto arguments = kernel::describe(p, weights::describe(p.b, 72, 1024), {}, {});
    check_synchronisation<kernel>(name, {kernel::blocks_of(72, 2)}, arguments);
}

}  // namespace

TEST_CASE("16-bit GEMV: no hazard in any schedule, and every mutation is detected") {
    constexpr gemv_shape small{.warps = 4, .stages = 2};
    constexpr gemv_shape at_once{.warps = 4, .stages = 2, .pdl_launch_at_once = true};
    check_silent_and_mutate<unnormalised_input, 32, small>("unnormalised rows");
    check_silent_and_mutate<rms_norm_input, 32, small>("RMSNorm");
    check_silent_and_mutate<rms_norm_input, 16, at_once>("RMSNorm, dependents launched at once");
}

TEST_CASE("check of fused RMSNorm + GEMM") {
    using product = rms_norm_gemm<bf16, float>;
    product_data<bf16, float> data(world::host_checked, 8, 64, 64);
    auto p = data.problem();
    const rms_norm_input input{.epsilon = 1e-5f};
    CHECK(text_of(product::check(p, {.schedules = 4}, epilogue::identity{}, input)) == "");
    p.m = 9;
    CHECK(error_message_of([&] {
              product::check(p, {}, epilogue::identity{}, input);
          }).starts_with("m, n, k: 9, 64, 64; must have 1 to 8 rows"));
}
#endif
