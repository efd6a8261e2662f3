// The messages are the same in the device pass.
// expect: this register tile belongs to another scope than the one passed first
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct kernel {
    static constexpr int warps = 4;
    struct arguments {};
    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments&, SharedMemory&) {
        block.each_warp([](warp& self) {
            warpgroup_tile<float, 64, 64> tile;
            fill(self, tile, 0.0f);
        });
    }
};

void wrong() {
    device::launch<kernel>({1}, {});
}
