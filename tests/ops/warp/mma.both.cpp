// Matrix products of one warp, in all four transpositions, from registers and from shared memory.
#include "worlds.hpp"

#include <cmath>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T, class C, int M, int N, int K, bool TransposeA, bool TransposeB, bool FromShared>
struct product {
    static constexpr int warps = 1;
    using a_shared = std::conditional_t<TransposeA, shared_tile<T, K, M>, shared_tile<T, M, K>>;
    using b_shared = std::conditional_t<TransposeB, shared_tile<T, N, K>, shared_tile<T, K, N>>;
    using a_tile =
        std::conditional_t<TransposeA, warp_tile<T, K, M, register_layout::column_major>, warp_tile<T, M, K>>;
    using b_tile =
        std::conditional_t<TransposeB, warp_tile<T, N, K>, warp_tile<T, K, N, register_layout::column_major>>;
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
        block.each_warp([&](warp& self) {
            warp_tile<C, M, N> sum;
            load(self, sum, args.c.at(0, 0));
            load(self, shared.a, args.a.at(0, 0));
            load(self, shared.b, args.b.at(0, 0));
            if constexpr (FromShared) {
                multiply_tiles(self, sum, shared.a, shared.b);
            } else {
                a_tile a;
                b_tile b;
                load(self, a, shared.a);
                load(self, b, shared.b);
                multiply_tiles(self, sum, a, b);
            }
            store(self, args.c.at(0, 0), sum);
        });
    }

  private:
    template <class A, class B>
    IMBREX_KERNEL static void multiply_tiles(warp& self, warp_tile<C, M, N>& sum, const A& a, const B& b) {
        if constexpr (TransposeA && TransposeB) {
            mma_atbt(self, sum, a, b);
        } else if constexpr (TransposeA) {
            mma_atb(self, sum, a, b);
        } else if constexpr (TransposeB) {
            mma_abt(self, sum, a, b);
        } else {
            mma_ab(self, sum, a, b);
        }
    }
};

template <class T, class C, int M, int N, int K, bool TransposeA, bool TransposeB, bool FromShared>
void check_product() {
    using kernel = product<T, C, M, N, K, TransposeA, TransposeB, FromShared>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<T> a(where, M * K), b(where, K * N);
        const float range = std::is_integral_v<T> ? 100.0f : 1.0f;
        fill_random(a.values, 1, -range, range);
        fill_random(b.values, 2, -range, range);
        // The accumulator starts with nonzero values. The checked world runs several schedules, each with fresh values.
        const int times = where == world::host_checked ? 3 : 1;
        for (int i = 0; i < times; ++i) {
            buffer<C> c(where, M * N);
            fill_random(c.values, 3, -range, range);
            const std::vector<C> before = c.values;
            run<kernel>(where, {1},
                        {matrix<const T>(a.upload(), TransposeA ? K : M, TransposeA ? M : K),
                         matrix<const T>(b.upload(), TransposeB ? N : K, TransposeB ? K : N), matrix(c.upload(), M, N)},
                        1);
            c.download();
            double worst = 0;
            for (int row = 0; row < M; ++row) {
                for (int column = 0; column < N; ++column) {
                    double expected = static_cast<double>(before[row * N + column]);
                    for (int k = 0; k < K; ++k) {
                        const double x = convert<float>(a.values[TransposeA ? k * M + row : row * K + k]);
                        const double y = convert<float>(b.values[TransposeB ? column * K + k : k * N + column]);
                        expected += x * y;
                    }
                    const double error = std::abs(expected - static_cast<double>(c.values[row * N + column]));
                    worst = error <= worst ? worst : error;
                }
            }
            CHECK(worst <= (std::is_integral_v<T> ? 0.0 : 1e-4));
        }
    }
}

template <class T, class C, int M, int N, int K, bool FromShared>
void check_all_transpositions() {
    check_product<T, C, M, N, K, false, false, FromShared>();
    check_product<T, C, M, N, K, false, true, FromShared>();
    check_product<T, C, M, N, K, true, false, FromShared>();
    check_product<T, C, M, N, K, true, true, FromShared>();
}

// B has eight rows, the accumulator eight columns; row values are a range of longer ones.
template <class T>
struct product_of_eight {
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const T> a;
        matrix_view<const T> b;
        const float* factors;  // 64
        matrix_view<float> c;
    };
    struct shared_memory {
        shared_tile<T, 8, 64> b;
        shared_vector<float, 64> factors;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.b, args.b.at(0, 0));
            load(self, shared.factors, args.factors, 64);
            warp_tile<T, 16, 64> a, b;
            load(self, a, args.a.at(0, 0));
            load_eight_rows(self, b, shared.b);
            warp_tile<float, 16, 8> sum;
            fill(self, sum, 1.0f);
            mma_abt(self, sum, a, b);
            row_values<float, 64, warp> factors;
            load(self, factors, shared.factors);
            combine_with_rows(self, sum, rows_of<32, 16>(self, factors), functional::multiply{});
            store(self, args.c.at(0, 0), sum);
        });
    }
};

}  // namespace

TEST_CASE_TEMPLATE("a warp multiplies in all four transpositions", T, bf16, fp16) {
    check_all_transpositions<T, float, 16, 16, 16, false>();
    check_all_transpositions<T, float, 32, 64, 48, false>();
    check_all_transpositions<T, float, 32, 64, 64, true>();
}

TEST_CASE("a warp multiplies 8-bit integers exactly") {
    check_all_transpositions<std::int8_t, std::int32_t, 32, 32, 64, false>();
    check_product<std::int8_t, std::int32_t, 16, 32, 96, false, true, true>();
}

TEST_CASE_TEMPLATE("a warp multiplies 8-bit floats", T, e4m3, e5m2) {
    check_product<T, float, 32, 32, 64, false, true, false>();
    check_product<T, float, 16, 32, 64, false, true, true>();
}

TEST_CASE_TEMPLATE("a warp multiplies with eight rows and scales by a range of row values", T, bf16, fp16) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<T> a(where, 16 * 64), b(where, 8 * 64);
        buffer<float> factors(where, 64), c(where, 16 * 8, NAN);
        fill_random(a.values, 1);
        fill_random(b.values, 2);
        fill_random(factors.values, 3);
        run<product_of_eight<T>>(where, {1},
                                 {matrix<const T>(a.upload(), 16, 64), matrix<const T>(b.upload(), 8, 64),
                                  factors.upload(), matrix(c.upload(), 16, 8)},
                                 4);
        c.download();
        double worst = 0;
        for (int row = 0; row < 16; ++row) {
            for (int column = 0; column < 8; ++column) {
                double expected = 1;
                for (int k = 0; k < 64; ++k) {
                    expected += static_cast<double>(convert<float>(a.values[row * 64 + k])) *
                                convert<float>(b.values[column * 64 + k]);
                }
                const double error = std::abs(expected * factors.values[32 + row] - c.values[row * 8 + column]);
                worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
            }
        }
        CHECK(worst <= 1e-5);
    }
}
