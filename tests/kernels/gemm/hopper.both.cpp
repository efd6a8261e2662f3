// The Hopper GEMM against plain loops in double: ragged sizes, the four ways operands can be stored, clusters of one and
// two; checked over many schedules, and every mutant of its synchronisation reported.
#include <imbrex/kernels/gemm/hopper.hpp>

#include "worlds.hpp"

#include <cmath>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class Kernel, class In, class Out>
typename Kernel::arguments arguments_of(In* a, In* b, Out* out, int m, int n, int k) {
    const auto matrix_of = [](auto* pointer, bool across, int rows, int columns) {
        return across ? matrix(pointer, columns, rows) : matrix(pointer, rows, columns);
    };
    return {tensor_of<typename Kernel::a_tile>(matrix_of(a, Kernel::a_across, m, k)),
            tensor_of<typename Kernel::b_share>(matrix_of(b, Kernel::b_across, k, n)),
            tensor_of<typename Kernel::out_tile>(matrix(out, m, n), tensor_use::store),
            {},
            (m + Kernel::rows - 1) / Kernel::rows,
            (n + Kernel::columns - 1) / Kernel::columns,
            (k + Kernel::depth - 1) / Kernel::depth};
}

template <class Kernel, class In, class Out>
void check_gemm(int blocks, int m, int n, int k, double tolerance) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        buffer<In> a(where, static_cast<std::size_t>(m) * k), b(where, static_cast<std::size_t>(k) * n);
        buffer<Out> out(where, static_cast<std::size_t>(m) * n, Out(NAN));
        fill_random(a.values, 1);
        fill_random(b.values, 2);
        run<Kernel>(where, {blocks}, arguments_of<Kernel>(a.send(), b.send(), out.send(), m, n, k), 4);
        out.fetch();
        double worst = 0;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                double expected = 0;
                for (int i = 0; i < k; ++i) {
                    const double x = static_cast<float>(a.values[Kernel::a_across ? i * m + row : row * k + i]);
                    const double y = static_cast<float>(b.values[Kernel::b_across ? column * k + i : i * n + column]);
                    expected += x * y;
                }
                const double error =
                    std::abs(expected - static_cast<double>(static_cast<float>(out.values[row * n + column])));
                worst = error <= worst ? worst : error;
            }
        }
        CHECK(worst <= tolerance);
    }
}

constexpr gemm_shape alone{.cluster = 1};
constexpr gemm_shape narrow{.columns = 128, .stages = 3, .cluster = 2, .band = 2};

}  // namespace

TEST_CASE("the Hopper GEMM, operands stored in every way") {
    check_gemm<gemm_hopper<bf16, bf16, plain_product>, bf16, bf16>(2, 200, 264, 136, 0.1);
    check_gemm<gemm_hopper<bf16, bf16, plain_product, stored::normal, stored::transposed>, bf16, bf16>(2, 72, 136, 200,
                                                                                                       0.1);
    check_gemm<gemm_hopper<fp16, fp16, plain_product, stored::transposed, stored::normal, narrow>, fp16, fp16>(
        4, 264, 304, 72, 0.02);
    check_gemm<gemm_hopper<bf16, bf16, plain_product, stored::transposed, stored::transposed, alone>, bf16, bf16>(
        3, 136, 520, 64, 0.1);
}

TEST_CASE("the Hopper GEMM works through many tiles a block") {
    check_gemm<gemm_hopper<bf16, bf16, plain_product, stored::normal, stored::normal, narrow>, bf16, bf16>(2, 520, 392,
                                                                                                           200, 0.1);
    check_gemm<gemm_hopper<bf16, float, plain_product, stored::normal, stored::normal, narrow>, bf16, float>(4, 8, 16,
                                                                                                             8, 1e-4);
}

#if !defined(__CUDACC__)
TEST_CASE("the Hopper GEMM is silent over 1,000 schedules, and each of its mutants is told") {
    using kernel = gemm_hopper<bf16, bf16, plain_product, stored::normal, stored::normal, gemm_shape{128, 64, 2, 2, 2}>;
    const int m = 264, n = 136, k = 200;
    std::vector<bf16> a(m * k), b(k * n), out(m * n);
    fill_random(a, 1);
    fill_random(b, 2);
    const auto arguments = arguments_of<kernel>(a.data(), b.data(), out.data(), m, n, k);
    const auto found = host::check<kernel>({2}, arguments, 1000);
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
    const host::mutation_score score = host::mutate<kernel>({2}, arguments);
    MESSAGE("Hopper GEMM: " << score.killed() << " / " << score.total());
    INFO(score.text());
    CHECK(score.total() > 0);
    CHECK(score.killed() == score.total());
}
#endif
