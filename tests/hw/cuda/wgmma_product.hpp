// A product by wgmma and its check against sums in double precision.
#pragma once

#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/products.hpp>
#include <imbrex/hw/sync.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <algorithm>
#include <cmath>
#include <hw/cuda/support.hpp>

namespace hw_test {

// A is M x K, or stored as K x M if transposed; B is K x N, or N x K.
template <class C, class A, class B, int M, int N, int K, bool TransposeA, bool TransposeB, bool InRegisters = false>
struct product {
    static constexpr int warps = 4;
    using a_tile = shared_tile<A, TransposeA ? K : M, TransposeA ? M : K>;
    using b_tile = shared_tile<B, TransposeB ? N : K, TransposeB ? K : N>;
    struct arguments {
        const A* a;
        const B* b;
        C* c;
    };
    struct shared_memory {
        a_tile a;
        b_tile b;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        hw::visit_shared(
            block, hw::use::write, source{},
            [&](int row, int column, A& value) { value = args.a[row * a_tile::columns + column]; }, smem.a);
        hw::visit_shared(
            block, hw::use::write, source{},
            [&](int row, int column, B& value) { value = args.b[row * b_tile::columns + column]; }, smem.b);
        hw::async_fence(block);
        block.sync();
        block.each_warpgroup([&](auto& group) {
            hw::fragment<C, M, N, 4> c;
            // Once replacing the old contents, once adding: twice the product.
            hw::visit(
                group, hw::use::write, source{}, [&](int, int, C& value) { value = C{1000000}; }, c);
            if constexpr (InRegisters) {
                hw::fragment<A, M, K, 4> a;
                hw::load_shared(group, a, smem.a);
                multiply(group, c, a, smem.b);
            } else {
                multiply(group, c, smem.a, smem.b);
            }
            hw::visit(
                group, hw::use::read, source{},
                [&](int row, int column, const C& value) { args.c[row * N + column] = value; }, c);
        });
    }

    template <class Group, class Accumulator, class Left, class Right>
    IMBREX_KERNEL static void multiply(const Group& group, Accumulator& c, const Left& a, const Right& b) {
        hw::wgmma<TransposeA, TransposeB>(group, c, a, b, false);
        hw::wgmma_commit(group);
        hw::wgmma<TransposeA, TransposeB>(group, c, a, b, true);
        hw::wgmma_commit(group);
        hw::wgmma_wait<0>(group);
    }
};

template <class C, class A, class B>
double worst_error(const std::vector<C>& found, const std::vector<A>& a, const std::vector<B>& b, int m, int n, int k,
                   bool transpose_a, bool transpose_b, double times) {
    double worst = 0;
    for (int row = 0; row < m; ++row) {
        for (int column = 0; column < n; ++column) {
            double expected = 0, size = 0;
            for (int i = 0; i < k; ++i) {
                const double left = convert<double>(a[transpose_a ? i * m + row : row * k + i]);
                const double right = convert<double>(b[transpose_b ? column * k + i : i * n + column]);
                expected += times * left * right;
                size += std::abs(times * left * right);
            }
            worst = std::max(worst, std::abs(static_cast<double>(found[row * n + column]) - expected) / (size + 1e-9));
        }
    }
    return worst;
}

template <class C, class A, class B, int M, int N, int K, bool TransposeA, bool TransposeB, bool InRegisters = false>
void check_product(float range, double tolerance) {
    CAPTURE(name_of<A>());
    CAPTURE(name_of<B>());
    CAPTURE(M);
    CAPTURE(N);
    CAPTURE(K);
    CAPTURE(TransposeA);
    CAPTURE(TransposeB);
    CAPTURE(InRegisters);
    const std::vector<A> a = random_numbers<A>(M * K, range);
    const std::vector<B> b = random_numbers<B>(N * K, range);
    const device_buffer<A> device_a(a);
    const device_buffer<B> device_b(b);
    const device_buffer<C> device_c(M * N);
    device::launch<product<C, A, B, M, N, K, TransposeA, TransposeB, InRegisters>>(
        {1, 1, 1}, {device_a.data(), device_b.data(), device_c.data()});
    CHECK(worst_error(device_c.read(), a, b, M, N, K, TransposeA, TransposeB, 2.0) < tolerance);
}

inline constexpr double exact_enough = 2e-6;
// The tensor cores keep fewer bits of a sum of 8-bit products.
inline constexpr double fp8_enough = 1e-3;

}  // namespace hw_test
