// A warp-specialized TMA pipeline: one producer warp loads, warpgroups multiply, and the two overlap.
//
// C = A B in bf16, with a 128 x 128 tile of C per block. The producer warp issues TMA loads of a 128 x 64 tile of A and
// a 64 x 128 tile of B, up to three steps ahead. The consumers wait for a stage, multiply, and release it. With a file
// name as argument, the host world writes a trace, in which the copies overlap the products.
#include <imbrex/imbrex.hpp>

#include <cmath>
#include <cstdio>

using namespace imbrex;

struct gemm {
    using a_tile = shared_tile<bf16, 64, 64>;
    using b_tile = shared_tile<bf16, 64, 128>;
    using c_tile = warpgroup_tile<float, 64, 128>;
    static constexpr int consumer_groups = 2;
    static constexpr int warps = 4 + 4 * consumer_groups;

    struct stage {
        a_tile a[consumer_groups];
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
        const int row = block.index().y * consumer_groups;
        const int column = block.index().x;
        shared.ring.init(block, 4 * consumer_groups);
        fence_barriers(block);
        block.sync();
        block.roles(producer<40>([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int k = 0; k < args.steps; ++k) {
                            auto slot = filling.acquire();
                            for (int i = 0; i < consumer_groups; ++i) {
                                load_async(self, slot->a[i], args.a.tile(row + i, k), slot);
                            }
                            load_async(self, slot->b, args.b.tile(k, column), slot);
                        }
                    }),
                    consumers<consumer_groups, 232>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        c_tile sum;
                        fill(self, sum, 0.0f);
                        for (int k = 0; k < args.steps; ++k) {
                            auto stage = full.wait();
                            mma_ab(self, sum, stage->a[self.index()], stage->b);
                        }
                        store(self, args.c.tile<c_tile>(row + self.index(), column), sum);
                    }));
    }
};

int main(int count, char** words) {
    const int m = 320, n = 200, k = 512;
    const world where = device_available() ? world::device : world::host;
    world_array<bf16> a(where, m * k), b(where, k * n);
    world_array<float> c(where, m * n, NAN);
    for (int i = 0; i < m * k; ++i) a.values[i] = bf16(std::sin(0.3f * i));
    for (int i = 0; i < k * n; ++i) b.values[i] = bf16(std::cos(0.7f * i));

    const grid_dim grid{(n + 127) / 128, (m + 127) / 128, 1};
    const gemm::arguments args{make_tma_tensor<gemm::a_tile>(matrix(a.upload(), m, k)),
                               make_tma_tensor<gemm::b_tile>(matrix(b.upload(), k, n)), matrix(c.upload(), m, n),
                               k / 64};
    launch<gemm>(where, grid, args);
    c.download();
    if (count > 1 && where == world::host) host::launch<gemm>(grid, args, {.trace_file = words[1]});

    double worst = 0;
    for (int i = 0; i < m * n; ++i) {
        double expected = 0;
        for (int j = 0; j < k; ++j) {
            expected += double(float(a.values[i / n * k + j])) * double(float(b.values[j * n + i % n]));
        }
        const double error = std::abs(expected - c.values[i]);
        worst = error <= worst ? worst : error;
    }
    std::printf("%d x %d x %d in the %s world: largest error %.2g\n", m, n, k, name_of(where).c_str(), worst);
    return worst < 1e-3 ? 0 : 1;
}
