// The sm_80 GEMM compared with float64: ragged sizes, any stride and alignment, the four operand layouts, batches,
// epilogues and GLU; int8 exactly. No hazard in any schedule, and every mutation of its synchronisation is detected.
#include <imbrex/kernels/gemm/ampere.hpp>
#include <imbrex/kernels/gemm/heuristics.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <limits>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// The smallest tiles that have all parts of the kernel: one warp, or two side by side.
constexpr gemm_ampere_shape small{.block_m = 64, .block_n = 64, .block_k_bytes = 64, .stages = 3, .group_m = 2};
constexpr gemm_ampere_shape wide{.block_m = 64, .block_n = 128, .block_k_bytes = 64, .stages = 3, .group_m = 2};
constexpr gemm_ampere_shape deep{.block_m = 128, .block_n = 128, .block_k_bytes = 128, .stages = 3, .group_m = 4};

struct size {
    int m, n, k;
    int batches = 1;
};

// The placement of a matrix: elements before its first, and between rows.
struct gap {
    int before = 0;
    int between = 0;
};

struct matrix_in_memory {
    int rows, columns;
    gap around;

    int row_stride() const { return columns + around.between; }
    int batch_stride() const { return rows * row_stride() + around.before; }
    std::size_t elements(int batches) const {
        return around.before + static_cast<std::size_t>(batches) * batch_stride();
    }
    std::size_t place(int batch, int row, int column) const {
        return around.before + static_cast<std::size_t>(batch) * batch_stride() + row * row_stride() + column;
    }
    template <class T>
    gemm_view<T> view(T* memory, int batches) const {
        return {memory + around.before, {batches, rows, columns}, {batch_stride(), row_stride()}};
    }
};

template <class T>
T poison() {
    if constexpr (std::is_integral_v<T>) {
        return 77;
    } else {
        return T(std::numeric_limits<float>::quiet_NaN());
    }
}

// `expected(sum, up sum, batch, row, column)` applies the epilogue to the exact product.
template <class Kernel, class In, class Out, class Epilogue, class Expected>
void check_gemm(const size& p, const gap& a_gap, const gap& b_gap, const gap& out_gap, const Epilogue& epilogue_in,
                const Expected& expected, double tolerance) {
    const int n_of_b = Kernel::is_glu ? 2 * p.n : p.n;
    const matrix_in_memory a_at =
        Kernel::a_is_m_major ? matrix_in_memory{p.k, p.m, a_gap} : matrix_in_memory{p.m, p.k, a_gap};
    const matrix_in_memory b_at =
        Kernel::b_is_k_major ? matrix_in_memory{n_of_b, p.k, b_gap} : matrix_in_memory{p.k, n_of_b, b_gap};
    const matrix_in_memory out_at{p.m, p.n, out_gap};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(p.m);
        CAPTURE(p.n);
        CAPTURE(p.k);
        CAPTURE(a_gap.between);
        CAPTURE(b_gap.between);
        buffer<In> a(where, a_at.elements(p.batches)), b(where, b_at.elements(p.batches));
        buffer<Out> out(where, out_at.elements(p.batches), poison<Out>());
        const float range = std::is_integral_v<In> ? 100.0f : 1.0f;
        fill_random(a.values, 1, -range, range);
        fill_random(b.values, 2, -range, range);
        const In *a_there = a.upload(), *b_there = b.upload();
        const typename Kernel::arguments arguments{a_at.view(a_there, p.batches),
                                                   b_at.view(b_there, p.batches),
                                                   out_at.view(out.upload(), p.batches),
                                                   epilogue_in(where),
                                                   (p.m + Kernel::block_m - 1) / Kernel::block_m,
                                                   (p.n + Kernel::block_n - 1) / Kernel::block_n,
                                                   (p.k + Kernel::block_k - 1) / Kernel::block_k,
                                                   p.batches};
        run<Kernel>(where, {arguments.tile_rows * arguments.tile_columns * p.batches}, arguments, 2);
        out.download();
        double worst = 0;
        std::size_t written = 0;
        for (int batch = 0; batch < p.batches; ++batch) {
            for (int row = 0; row < p.m; ++row) {
                for (int column = 0; column < p.n; ++column) {
                    double sums[2] = {0, 0};
                    for (int part = 0; part < (Kernel::is_glu ? 2 : 1); ++part) {
                        for (int i = 0; i < p.k; ++i) {
                            const int c = column + part * p.n;
                            const auto x = Kernel::a_is_m_major ? a_at.place(batch, i, row) : a_at.place(batch, row, i);
                            const auto y = Kernel::b_is_k_major ? b_at.place(batch, c, i) : b_at.place(batch, i, c);
                            sums[part] += static_cast<double>(convert<float>(a.values[x])) *
                                          static_cast<double>(convert<float>(b.values[y]));
                        }
                    }
                    const double wanted = expected(sums[0], sums[1], batch, row, column);
                    const double seen = convert<double>(out.values[out_at.place(batch, row, column)]);
                    const double error = std::abs(wanted - seen) / (1 + std::abs(wanted));
                    worst = error <= worst ? worst : error;
                    ++written;
                }
            }
        }
        CHECK(worst <= tolerance);
        // The gaps between rows are untouched.
        std::size_t untouched = 0;
        for (const Out& value : out.values) {
            const Out before = poison<Out>();
            untouched += std::memcmp(&value, &before, sizeof(Out)) == 0 ? 1 : 0;
        }
        if (!std::is_integral_v<Out>) CHECK(untouched == out.values.size() - written);
    }
}

constexpr auto no_epilogue = [](world) { return epilogue::identity{}; };
constexpr auto the_sum = [](double sum, double, int, int, int) { return sum; };

template <class In, class Out, matrix_layout A, matrix_layout B, gemm_ampere_shape Shape>
void check_plain(const size& p, const gap& a_gap, const gap& b_gap, const gap& out_gap, double tolerance) {
    using kernel = gemm_ampere<In, Out, epilogue::identity, A, B, Shape>;
    check_gemm<kernel, In, Out>(p, a_gap, b_gap, out_gap, no_epilogue, the_sum, tolerance);
}

// Aligned; row stride a multiple of 4 bytes only; of 2 bytes; and a misaligned start as well.
constexpr gap gaps[] = {{0, 0}, {2, 2}, {0, 1}, {1, 3}};

template <class In, class Out, matrix_layout A, matrix_layout B>
void check_sizes(double tolerance) {
    check_plain<In, Out, A, B, small>({1, 1, 1}, {}, {}, {}, tolerance);
    check_plain<In, Out, A, B, small>({70, 9, 0}, {}, {}, {}, 0);
    check_plain<In, Out, A, B, small>({7, 33, 65}, {}, {}, {}, tolerance);
    check_plain<In, Out, A, B, wide>({129, 7, 33}, {}, {}, {}, tolerance);
    check_plain<In, Out, A, B, wide>({33, 129, 7}, {}, {}, {}, tolerance);
    for (const gap& one : gaps) {
        check_plain<In, Out, A, B, small>({72, 136, 200}, one, {}, {}, tolerance);
        check_plain<In, Out, A, B, small>({72, 136, 104}, {}, one, {}, tolerance);
        check_plain<In, Out, A, B, wide>({72, 136, 40}, {8, 8}, {16, 16}, one, tolerance);
    }
}

}  // namespace

TEST_CASE("sm_80 GEMM: every operand layout, any size and alignment") {
    check_sizes<bf16, bf16, matrix_layout::row_major, matrix_layout::row_major>(0.01);
    check_sizes<bf16, float, matrix_layout::row_major, matrix_layout::column_major>(1e-4);
    check_sizes<fp16, fp16, matrix_layout::column_major, matrix_layout::row_major>(0.002);
    check_sizes<bf16, bf16, matrix_layout::column_major, matrix_layout::column_major>(0.01);
}

TEST_CASE("sm_80 GEMM: default tile shapes") {
    check_plain<bf16, bf16, matrix_layout::row_major, matrix_layout::row_major, gemm_ampere_shape{}>({200, 264, 136},
                                                                                                     {}, {}, {}, 0.01);
    check_plain<bf16, bf16, matrix_layout::row_major, matrix_layout::row_major, gemm_ampere_shape{}>({193, 520, 171},
                                                                                                     {}, {}, {}, 0.01);
    check_plain<bf16, bf16, matrix_layout::row_major, matrix_layout::column_major, short_tile_ampere_shape>(
        {200, 264, 136}, {}, {}, {}, 0.01);
    check_plain<fp16, fp16, matrix_layout::column_major, matrix_layout::row_major, short_tile_ampere_shape>(
        {129, 264, 200}, {}, {}, {}, 0.002);
    check_plain<bf16, bf16, matrix_layout::row_major, matrix_layout::column_major, deep>({129, 272, 328}, {}, {}, {},
                                                                                         0.01);
    check_plain<fp16, e4m3, matrix_layout::column_major, matrix_layout::row_major, deep>({136, 136, 256}, {}, {}, {},
                                                                                         0.07);
}

TEST_CASE("sm_80 GEMM: int8 is exact in every operand layout") {
    using std::int32_t, std::int8_t;
    for (const gap& one : gaps) {
        const gap wider{2 * one.before, 2 * one.between};
        check_plain<int8_t, int32_t, matrix_layout::row_major, matrix_layout::column_major, small>({72, 136, 200}, one,
                                                                                                   wider, {}, 0);
        check_plain<int8_t, int32_t, matrix_layout::row_major, matrix_layout::row_major, small>({72, 80, 96}, wider,
                                                                                                one, {}, 0);
    }
    check_plain<int8_t, int32_t, matrix_layout::column_major, matrix_layout::row_major, small>({80, 96, 144}, {}, {},
                                                                                               {}, 0);
    check_plain<int8_t, int32_t, matrix_layout::column_major, matrix_layout::column_major, deep>({7, 129, 33}, {}, {},
                                                                                                 {}, 0);
    check_plain<int8_t, float, matrix_layout::row_major, matrix_layout::column_major, short_tile_ampere_shape>(
        {130, 300, 200}, {}, {}, {}, 1e-6);
}

TEST_CASE("sm_80 GEMM: batches, and one operand shared by all batches") {
    using kernel =
        gemm_ampere<bf16, bf16, epilogue::identity, matrix_layout::row_major, matrix_layout::row_major, wide>;
    check_plain<bf16, bf16, matrix_layout::row_major, matrix_layout::row_major, wide>({72, 136, 72, 3}, {}, {0, 1},
                                                                                      {5, 3}, 0.01);
    for (const world where : worlds()) {
        const int m = 65, n = 40, k = 24, batches = 3;
        buffer<bf16> a(where, m * k), b(where, batches * k * n), out(where, batches * m * n, poison<bf16>());
        fill_random(a.values, 1);
        fill_random(b.values, 2);
        const bf16 *a_there = a.upload(), *b_there = b.upload();
        run<kernel>(where, {2 * batches},
                    {{a_there, {1, m, k}, {m * k, k}},
                     {b_there, {batches, k, n}, {k * n, n}},
                     {out.upload(), {batches, m, n}, {m * n, n}},
                     {},
                     2,
                     1,
                     1,
                     batches},
                    2);
        out.download();
        double worst = 0;
        for (int batch = 0; batch < batches; ++batch) {
            for (int row = 0; row < m; ++row) {
                for (int column = 0; column < n; ++column) {
                    double sum = 0;
                    for (int i = 0; i < k; ++i) {
                        sum += static_cast<double>(convert<float>(a.values[row * k + i])) *
                               static_cast<double>(convert<float>(b.values[(batch * k + i) * n + column]));
                    }
                    const double error = std::abs(sum - convert<double>(out.values[(batch * m + row) * n + column]));
                    worst = error <= worst ? worst : error;
                }
            }
        }
        CHECK(worst <= 0.05);
    }
}

TEST_CASE("sm_80 GEMM: epilogues") {
    const auto silu_of = [](double x) { return x / (1 + std::exp(-x)); };
    const int m = 137, n = 150;
    for (const world where : worlds()) {
        buffer<bf16> bias(where, n), residual(where, m * n);
        fill_random(bias.values, 3);
        fill_random(residual.values, 4);
        const bf16 *bias_there = bias.upload(), *residual_there = residual.upload();
        const auto value = [](bf16 x) { return static_cast<double>(convert<float>(x)); };
        const auto chain = [&](world) {
            return epilogue::compose(epilogue::scale{0.5f}, epilogue::bias<bf16>{{bias_there, n}},
                                     epilogue::activation<activation::silu>{},
                                     epilogue::residual<bf16>{gemm_matrix_view(residual_there, m, n)});
        };
        using steps = decltype(chain(where));
        check_gemm<gemm_ampere<bf16, bf16, steps, matrix_layout::row_major, matrix_layout::column_major, wide>, bf16,
                   bf16>(
            {m, n, 72}, {}, {}, {}, chain,
            [&](double sum, double, int, int row, int column) {
                return silu_of(0.5 * sum + value(bias.values[column])) + value(residual.values[row * n + column]);
            },
            0.01);
        const auto gate = [&](world) {
            return epilogue::compose(epilogue::swiglu{}, epilogue::bias<bf16>{{bias_there, n}});
        };
        using gate_steps = decltype(gate(where));
        const auto gate_expected = [&](double g, double u, int, int, int column) {
            return silu_of(g) * u + value(bias.values[column]);
        };
        check_gemm<gemm_ampere<bf16, bf16, gate_steps, matrix_layout::row_major, matrix_layout::row_major, wide>, bf16,
                   bf16>({m, n, 72}, {}, {}, {}, gate, gate_expected, 0.015);
        check_gemm<gemm_ampere<bf16, float, gate_steps, matrix_layout::row_major, matrix_layout::column_major, small>,
                   bf16, float>({m, n, 72}, {}, {0, 1}, {}, gate, gate_expected, 1e-3);
    }
    check_gemm<
        gemm_ampere<std::int8_t, bf16, epilogue::scale, matrix_layout::row_major, matrix_layout::column_major, small>,
        std::int8_t, bf16>(
        {72, 80, 100}, {}, {}, {}, [](world) { return epilogue::scale{1.0f / 1024}; },
        [](double sum, double, int, int, int) { return sum / 1024; }, 0.01);
}

TEST_CASE("sm_80 GEMM: 8-bit output") {
    using kernel =
        gemm_ampere<bf16, std::int8_t, epilogue::scale, matrix_layout::row_major, matrix_layout::row_major, wide>;
    check_gemm<kernel, bf16, std::int8_t>(
        {72, 144, 40}, {}, {}, {0, 5}, [](world) { return epilogue::scale{16}; },
        [](double sum, double, int, int, int) { return std::fmin(std::fmax(std::nearbyint(16 * sum), -128), 127); },
        0.5);
}

#if !defined(__CUDACC__)
TEST_CASE("sm_80 GEMM: short tiles for small M, and where tall ones leave SMs idle") {
    const auto low = [](int m, int n, int batches) {
        return gemm_prefers_short_tiles({m, n, 64, batches, 132, false, true, false, true});
    };
    CHECK(!low(8192, 8192, 1));  // 11 waves of 192 rows instead of 16 of 128
    CHECK(low(4096, 4096, 1));   // 3 instead of 4
    CHECK(low(128, 8192, 1));
    CHECK(!low(192, 8192, 3));  // 96 tiles are one wave, 192 are two
}

TEST_CASE("sm_80 GEMM: no hazard in any schedule, and every mutation is detected") {
    using kernel =
        gemm_ampere<bf16, bf16, epilogue::identity, matrix_layout::row_major, matrix_layout::row_major, wide>;
    const int m = 70, n = 136, k = 200;
    std::vector<bf16> a(m * k), b(k * n), out(m * n);
    fill_random(a, 1);
    fill_random(b, 2);
    const typename kernel::arguments arguments{
        gemm_matrix_view<const bf16>(a.data(), m, k), gemm_matrix_view<const bf16>(b.data(), k, n),
        gemm_matrix_view(out.data(), m, n),           {},
        (m + kernel::block_m - 1) / kernel::block_m,  (n + kernel::block_n - 1) / kernel::block_n,
        (k + kernel::block_k - 1) / kernel::block_k,  1};
    check_synchronisation<kernel>("sm_80 GEMM", {4}, arguments);
}
#endif
