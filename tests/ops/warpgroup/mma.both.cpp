// Matrix products of a warpgroup: four transpositions, A from shared memory and from registers, every legal width,
// synchronous and asynchronous.
#include "worlds.hpp"

#include <cmath>
#include <utility>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T, class C, int M, int N, int K, bool TransposeA, bool TransposeB, bool ARegisters, bool Asynchronous>
struct product {
    static constexpr int warps = 4;
    using a_shared = std::conditional_t<TransposeA, shared_tile<T, K, M>, shared_tile<T, M, K>>;
    using b_shared = std::conditional_t<TransposeB, shared_tile<T, N, K>, shared_tile<T, K, N>>;
    struct arguments {
        matrix_view<const T> a;
        matrix_view<const T> b;
        matrix_view<C> c;
    };
    struct shared_memory {
        a_shared a;
        b_shared b;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            load(self, shared.a, args.a.at(0, 0));
            load(self, shared.b, args.b.at(0, 0));
            fence_async(self);
            self.sync();
            warpgroup_tile<C, M, N> sum;
            // Twice, so that replacing and adding are both tested: the result is 2 A B.
            if constexpr (ARegisters) {
                warpgroup_tile<T, M, K> a;
                load(self, a, shared.a);
                multiply_tiles(self, sum, a, shared.b, accumulation::replace);
                multiply_tiles(self, sum, a, shared.b, accumulation::add);
                if constexpr (Asynchronous) wait_mma(self, sum);
            } else {
                multiply_tiles(self, sum, shared.a, shared.b, accumulation::replace);
                multiply_tiles(self, sum, shared.a, shared.b, accumulation::add);
                if constexpr (Asynchronous) wait_mma(self, sum);
            }
            store(self, args.c.at(0, 0), sum);
        });
    }

  private:
    template <class A, class B>
    IMBREX_KERNEL static void multiply_tiles(warpgroup& self, warpgroup_tile<C, M, N>& sum, const A& a, const B& b,
                                             accumulation how) {
        if constexpr (Asynchronous && TransposeA && TransposeB) {
            mma_atbt_async(self, sum, a, b, how);
        } else if constexpr (Asynchronous && TransposeA) {
            mma_atb_async(self, sum, a, b, how);
        } else if constexpr (Asynchronous && TransposeB) {
            mma_abt_async(self, sum, a, b, how);
        } else if constexpr (Asynchronous) {
            mma_ab_async(self, sum, a, b, how);
        } else if constexpr (TransposeA && TransposeB) {
            mma_atbt(self, sum, a, b, how);
        } else if constexpr (TransposeA) {
            mma_atb(self, sum, a, b, how);
        } else if constexpr (TransposeB) {
            mma_abt(self, sum, a, b, how);
        } else {
            mma_ab(self, sum, a, b, how);
        }
    }
};

template <class T, class C, int M, int N, int K, bool TransposeA, bool TransposeB, bool ARegisters, bool Asynchronous>
void check_product() {
    using kernel = product<T, C, M, N, K, TransposeA, TransposeB, ARegisters, Asynchronous>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(N);
        buffer<T> a(where, M * K), b(where, K * N);
        buffer<C> c(where, M * N, static_cast<C>(-1e9f));
        const float range = std::is_integral_v<T> ? 100.0f : 1.0f;
        fill_random(a.values, 1, -range, range);
        fill_random(b.values, 2, -range, range);
        run<kernel>(where, {1},
                    {matrix<const T>(a.upload(), TransposeA ? K : M, TransposeA ? M : K),
                     matrix<const T>(b.upload(), TransposeB ? N : K, TransposeB ? K : N), matrix(c.upload(), M, N)},
                    4);
        c.download();
        double worst = 0;
        for (int row = 0; row < M; ++row) {
            for (int column = 0; column < N; ++column) {
                double expected = 0;
                for (int k = 0; k < K; ++k) {
                    const double x = convert<float>(a.values[TransposeA ? k * M + row : row * K + k]);
                    const double y = convert<float>(b.values[TransposeB ? column * K + k : k * N + column]);
                    expected += 2 * x * y;
                }
                const double error = std::abs(expected - static_cast<double>(c.values[row * N + column]));
                worst = error <= worst ? worst : error;
            }
        }
        // Hopper's tensor cores keep fewer bits between additions of 8-bit products.
        CHECK(worst <= (std::is_integral_v<T> ? 0.0 : sizeof(T) == 1 ? 2e-2 : 1e-4));
    }
}

template <class T, int M, int N, int K, bool Asynchronous>
void check_all_transpositions() {
    check_product<T, float, M, N, K, false, false, false, Asynchronous>();
    check_product<T, float, M, N, K, false, true, false, Asynchronous>();
    check_product<T, float, M, N, K, true, false, false, Asynchronous>();
    check_product<T, float, M, N, K, true, true, false, Asynchronous>();
    check_product<T, float, M, N, K, false, false, true, Asynchronous>();
    check_product<T, float, M, N, K, false, true, true, Asynchronous>();
}

template <int... Eighths>
void check_every_width(std::integer_sequence<int, Eighths...>) {
    (check_product<bf16, float, 64, 8 * (Eighths + 1), 16, false, true, false, false>(), ...);
}

}  // namespace

TEST_CASE_TEMPLATE("a warpgroup multiplies in all transpositions", T, bf16, fp16) {
    check_all_transpositions<T, 64, 64, 64, false>();
    check_all_transpositions<T, 128, 128, 32, true>();
}

TEST_CASE("operands of every swizzle width") {
    check_product<bf16, float, 64, 16, 16, false, false, false, false>();
    check_product<bf16, float, 64, 32, 32, true, false, false, false>();
    check_product<bf16, float, 64, 96, 48, false, true, false, false>();
    check_product<bf16, float, 64, 256, 128, false, false, false, true>();
}

TEST_CASE("a warpgroup's product has every width from 8 to 256") {
    check_every_width(std::make_integer_sequence<int, 32>{});
}

TEST_CASE("a warpgroup multiplies 8-bit operands") {
    check_product<e4m3, float, 64, 64, 64, false, true, false, false>();
    check_product<e5m2, float, 64, 128, 128, false, true, false, true>();
    check_product<std::int8_t, std::int32_t, 64, 64, 128, false, true, false, false>();
}
