// architectures: 89 90a 100a 120a
// FP8 products by mma.sync, from sm_89 on.
#include <imbrex/imbrex.hpp>

using namespace imbrex;

template <class T>
struct float8_product {
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const T> a, b;
        matrix_view<float> c;
    };
    struct shared_memory {
        shared_tile<T, 32, 64> a, b;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.a, args.a.at(0, 0));
            load(self, shared.b, args.b.at(0, 0));
            warp_tile<float, 32, 32> sum;
            fill(self, sum, 0.0f);
            mma_abt(self, sum, shared.a, shared.b);
            store(self, args.c.at(0, 0), sum);
        });
    }
};

void launch_float8_products(const float8_product<e4m3>::arguments& four, const float8_product<e5m2>::arguments& five) {
    device::launch<float8_product<e4m3>>({1}, four);
    device::launch<float8_product<e5m2>>({1}, five);
}
