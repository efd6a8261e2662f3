// Speed of the host world without checks: a float GEMM of 1024 cubed, written as a device kernel (producer warp,
// consumer warpgroup, pipeline), on all cores, against OpenBLAS sgemm if available.
#include <imbrex/imbrex.hpp>

#define ANKERL_NANOBENCH_IMPLEMENT
#include <nanobench.h>

#ifdef BENCH_HAS_OPENBLAS
#include <cblas.h>
#endif

#include <cmath>
#include <cstdio>
#include <vector>

using namespace imbrex;

namespace {

struct host_gemm {
    using a_tile = shared_tile<float, 128, 128>;
    using b_tile = shared_tile<float, 128, 256>;
    using c_tile = warpgroup_tile<float, 128, 256>;
    static constexpr int warps = 8;

    struct stage {
        a_tile a;
        b_tile b;
    };
    struct shared_memory {
        pipeline<stage, 1> ring;
    };
    struct arguments {
        tma_tensor<a_tile, 2> a;
        tma_tensor<b_tile, 2> b;
        matrix_view<float> c;
        int steps;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const grid_dim at = block.index();
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int k = 0; k < args.steps; ++k) {
                            auto slot = filling.acquire();
                            load_async(self, slot->a, args.a.tile(at.y, k), slot);
                            load_async(self, slot->b, args.b.tile(k, at.x), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        c_tile sum;
                        for (int k = 0; k < args.steps; ++k) {
                            auto stage = full.wait();
                            mma_ab(self, sum, stage->a, stage->b, k == 0 ? accumulation::replace : accumulation::add);
                        }
                        store(self, args.c.tile<c_tile>(at.y, at.x), sum);
                    }));
    }
};

}  // namespace

int main() {
    const int size = 1024;
    std::vector<float> a(size * size), b(size * size), c(size * size, NAN), reference(size * size, 0.0f);
    for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = std::sin(0.3f * i);
        b[i] = std::cos(0.7f * i);
    }
    const host_gemm::arguments args{make_tma_tensor<host_gemm::a_tile>(matrix(a.data(), size, size)),
                                    make_tma_tensor<host_gemm::b_tile>(matrix(b.data(), size, size)),
                                    matrix(c.data(), size, size), size / 128};
    const grid_dim grid{size / 256, size / 128, 1};

    ankerl::nanobench::Bench bench;
    bench.title("float GEMM, 1024 cubed")
        .unit("flop")
        .batch(2.0 * size * size * size)
        .minEpochIterations(5)
        .relative(true);
#ifdef BENCH_HAS_OPENBLAS
    const auto blas = [&] {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1.0f, a.data(), size, b.data(), size,
                    0.0f, reference.data(), size);
    };
    bench.run("OpenBLAS sgemm", blas);
    bench.run("Imbrex, host world", [&] { host::launch<host_gemm>(grid, args); });
    bench.run("OpenBLAS sgemm, again", blas);
    bench.run("Imbrex, host world, again", [&] { host::launch<host_gemm>(grid, args); });
    double worst = 0;
    for (std::size_t i = 0; i < c.size(); ++i) worst = std::fmax(worst, std::abs(c[i] - reference[i]));
    std::printf("max difference: %.2g\n", worst);
    return worst < 1e-2 ? 0 : 1;
#else
    std::printf("OpenBLAS not found: Imbrex only\n");
    bench.run("Imbrex, host world", [&] { host::launch<host_gemm>(grid, args); });
    return 0;
#endif
}
