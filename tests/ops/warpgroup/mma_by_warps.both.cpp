// A warpgroup's product by its warps' own instruction: against plain loops, added to what was there; and in shared memory
// that nobody wrote, told.
#include <imbrex/ops/warpgroup/mma_by_warps.hpp>

#include "worlds.hpp"

#include <cmath>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T, int M, int N, int K>
struct product_by_warps {
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<const T> a, b;
        matrix_view<float> c;
    };
    struct shared_memory {
        shared_tile<T, N, 2 * K> b;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_group([&](warpgroup& self) {
            load(self, shared.b, args.b.at(0, 0));
            self.sync();
            group_tile<T, M, K> left, right;
            load(self, left, args.a.at(0, 0));
            load(self, right, args.a.at(0, K));
            group_tile<float, M, N> sum;
            fill(self, sum, 1.0f);
            mma_abt_by_warps(self, sum, left, shared.b.template part<N, K>(0, 0));
            mma_abt_by_warps(self, sum, right, shared.b.template part<N, K>(0, K));
            store(self, args.c.at(0, 0), sum);
        });
    }
};

template <class T, int M, int N, int K>
void check_product() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(N);
        CAPTURE(K);
        buffer<T> a(where, M * 2 * K), b(where, N * 2 * K);
        buffer<float> c(where, M * N, NAN);
        fill_random(a.values, 1);
        fill_random(b.values, 2);
        run<product_by_warps<T, M, N, K>>(
            where, {1},
            {matrix<const T>(a.send(), M, 2 * K), matrix<const T>(b.send(), N, 2 * K), matrix(c.send(), M, N)}, 4);
        c.fetch();
        double worst = 0;
        for (int row = 0; row < M; ++row) {
            for (int column = 0; column < N; ++column) {
                double expected = 1;
                for (int k = 0; k < 2 * K; ++k) {
                    expected += static_cast<double>(convert<float>(a.values[row * 2 * K + k])) *
                                convert<float>(b.values[column * 2 * K + k]);
                }
                const double error = std::abs(expected - static_cast<double>(c.values[row * N + column]));
                worst = error <= worst ? worst : error;
            }
        }
        CHECK(worst <= 1e-4);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("a warpgroup multiplies by its warps", T, bf16, fp16) {
    check_product<T, 64, 8, 32>();
    check_product<T, 64, 8, 128>();
    check_product<T, 64, 16, 64>();
    check_product<T, 128, 32, 16>();
    check_product<T, 64, 24, 64>();
}

#if !defined(__CUDACC__)
namespace {

struct unwritten {
    static constexpr int warps = 4;
    struct arguments {};
    struct shared_memory {
        shared_tile<bf16, 8, 64> b;
    };
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& shared) {
        block.each_group([&](warpgroup& self) {
            group_tile<bf16, 64, 64> a;
            group_tile<float, 64, 8> sum;
            fill(self, a, bf16(1.0f));
            fill(self, sum, 0.0f);
            mma_abt_by_warps(self, sum, a, shared.b);
        });
    }
};

}  // namespace

TEST_CASE("a product of what was never written is told") {
    const auto found = host::check<unwritten>({1}, {}, 4);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::never_written);
}
#endif
