// An A operand in accumulator order times an ordinary B operand.
// expect: imbrex: an operand in accumulator order is multiplied only with another in that order
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct mixed_orders {
    static constexpr int warps = 4;
    struct arguments {};
    struct shared_memory {
        shared_tile<e4m3, 64, 32> b;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments&, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            accumulator_order_tile<e4m3, 64, 32> a;
            warpgroup_tile<float, 64, 64> sum;
            mma_abt_async(self, sum, a, shared.b);
        });
    }
};

int main() {
    host::launch<mixed_orders>({1}, {});
}
