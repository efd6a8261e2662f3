// The demo: a fused GEMM and softmax in the host world, without a GPU, and the checker's report for a variant of it
// with a synchronisation error.
//
// The kernel computes softmax(A B), 64 rows per block. The producer warp loads tiles of A and B by TMA; the consumer
// warpgroup multiplies them and applies the softmax to its rows. The broken variant releases each stage before its
// product is done, an error that occasionally gives a wrong number on a GPU.
#include <imbrex/imbrex.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace imbrex;

template <bool ReleasesEarly>
struct gemm_softmax {
    using a_tile = shared_tile<bf16, 64, 64>;
    using b_tile = shared_tile<bf16, 64, 128>;
    using c_tile = warpgroup_tile<float, 64, 128>;
    static constexpr int warps = 8;

    struct stage {
        a_tile a;
        b_tile b;
    };
    struct shared_memory {
        pipeline<stage, 3> ring;
    };
    struct arguments {
        tma_tensor<a_tile, 2> a;
        tma_tensor<b_tile, 2> b;
        matrix_view<float> c;
        int steps;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const int row = block.index().x;
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int k = 0; k < args.steps; ++k) {
                            auto slot = filling.acquire();
                            load_async(self, slot->a, args.a.tile(row, k), slot);
                            load_async(self, slot->b, args.b.tile(k, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        c_tile scores;
                        fill(self, scores, 0.0f);
                        for (int k = 0; k < args.steps; ++k) {
                            auto stage = full.wait();
                            mma_ab_async(self, scores, stage->a, stage->b);
                            if constexpr (ReleasesEarly) stage.release();
                            wait_mma(self, scores);
                        }
                        softmax(self, scores);
                        store(self, args.c.template tile<c_tile>(row, 0), scores);
                    }));
    }
};

int main() {
    const int rows = 1000, columns = 128, depth = 512;
    std::vector<bf16> a(rows * depth), b(depth * columns);
    std::vector<float> c(rows * columns, NAN);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = bf16(std::sin(0.3f * i));
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = bf16(std::cos(0.7f * i) * 0.2f);

    using kernel = gemm_softmax<false>;
    const grid_dim grid{(rows + 63) / 64, 1, 1};
    const kernel::arguments args{make_tma_tensor<kernel::a_tile>(matrix(a.data(), rows, depth)),
                                 make_tma_tensor<kernel::b_tile>(matrix(b.data(), depth, columns)),
                                 matrix(c.data(), rows, columns), depth / 64};

    std::printf(
        "1. softmax(A B), A %d x %d and B %d x %d in bf16, %d blocks of a producer warp and a consumer warpgroup\n",
        rows, depth, depth, columns, grid.x);
    const auto begin = std::chrono::steady_clock::now();
    host::launch<kernel>(grid, args);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    double worst = 0;
    for (int row = 0; row < rows; ++row) {
        std::vector<double> expected(columns, 0.0);
        double most = -INFINITY, sum = 0;
        for (int column = 0; column < columns; ++column) {
            for (int k = 0; k < depth; ++k) {
                expected[column] += double(float(a[row * depth + k])) * double(float(b[k * columns + column]));
            }
            most = expected[column] > most ? expected[column] : most;
        }
        for (double& one : expected) sum += one = std::exp(one - most);
        for (int column = 0; column < columns; ++column) {
            const double error = std::abs(expected[column] / sum - c[row * columns + column]);
            worst = error <= worst ? worst : error;
        }
    }
    std::printf("   host world, plain: %.1f ms, largest error against float64 %.2g\n\n", took.count(), worst);

    const int schedules = 100;
    std::printf(
        "2. The same kernel, checked: every shared byte carries its history, asynchronous copies and products\n"
        "   complete in an order drawn from a seed\n");
    const auto hazard_found = host::check<kernel>({2, 1, 1}, args, schedules);
    std::printf("   %d schedules: %s\n\n", schedules, hazard_found ? hazard_found->text().c_str() : "no hazard");

    std::printf("3. A copy of it that releases each stage before its product is done\n");
    using broken = gemm_softmax<true>;
    const auto reported = host::check<broken>({2, 1, 1}, {args.a, args.b, args.c, args.steps}, schedules);
    std::printf("%s", reported ? reported->text().c_str() : "   not found\n");

    const bool right = worst < 1e-5 && !hazard_found && reported;
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
