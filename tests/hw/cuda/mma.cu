// mma.sync, for every pair of element types, against sums in double precision.
#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/products.hpp>

#include <algorithm>
#include <cmath>
#include <hw/cuda/support.hpp>

using namespace hw_test;

namespace {

constexpr double exact_enough = 2e-6;
// Tensor cores may keep fewer bits of a sum of 8-bit products.
constexpr double fp8_enough = 1e-3;

template <class C, class A, class B, int M, int N, int K>
struct product {
    static constexpr int warps = 1;
    struct arguments {
        const A* a;
        const B* b;
        C* c;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        hw::fragment<A, M, K, 1> a;
        hw::fragment<B, N, K, 1> b;
        hw::fragment<C, M, N, 1> c;
        hw::load_global(block, a, global_tile<const A>{args.a, K, M, K}, A{});
        hw::load_global(block, b, global_tile<const B>{args.b, K, N, K}, B{});
        hw::load_global(block, c, global_tile<const C>{args.c, N, M, N}, C{});
        hw::mma_sync(block, c, a, b);
        hw::store_global(block, global_tile<C>{args.c, N, M, N}, c);
    }
};

template <class C, class A, class B, int M, int N, int K>
void check_product(float range, double tolerance) {
    CAPTURE(name_of<A>());
    CAPTURE(name_of<B>());
    const std::vector<A> a = random_numbers<A>(M * K, range);
    const std::vector<B> b = random_numbers<B>(N * K, range);
    const std::vector<C> c = random_numbers<C>(M * N, range);
    const device_buffer<A> device_a(a);
    const device_buffer<B> device_b(b);
    const device_buffer<C> device_c(c);
    device::launch<product<C, A, B, M, N, K>>({1, 1, 1}, {device_a.data(), device_b.data(), device_c.data()});
    const std::vector<C> found = device_c.read();
    double worst = 0;
    for (int row = 0; row < M; ++row) {
        for (int column = 0; column < N; ++column) {
            double expected = static_cast<double>(c[row * N + column]), size = std::abs(expected);
            for (int k = 0; k < K; ++k) {
                const double term = convert<double>(a[row * K + k]) * convert<double>(b[column * K + k]);
                expected += term;
                size += std::abs(term);
            }
            worst = std::max(worst, std::abs(static_cast<double>(found[row * N + column]) - expected) / (size + 1e-9));
        }
    }
    CHECK(worst < tolerance);
}

}  // namespace

TEST_CASE("a warp multiplies matrices of 16-bit elements") {
    if (skipped()) return;
    check_product<float, bf16, bf16, 16, 16, 16>(2.0F, exact_enough);
    check_product<float, bf16, bf16, 32, 48, 64>(2.0F, exact_enough);
    check_product<float, fp16, fp16, 16, 32, 32>(2.0F, exact_enough);
}

TEST_CASE("a warp multiplies matrices of 8-bit elements") {
    if (skipped()) return;
    check_product<std::int32_t, std::int8_t, std::int8_t, 32, 16, 64>(127.0F, 1e-12);
    check_product<float, e4m3, e4m3, 16, 16, 32>(2.0F, fp8_enough);
    check_product<float, e4m3, e5m2, 32, 16, 64>(2.0F, fp8_enough);
    check_product<float, e5m2, e4m3, 16, 32, 32>(2.0F, fp8_enough);
    check_product<float, e5m2, e5m2, 16, 16, 64>(2.0F, fp8_enough);
}
