// PDL: a kernel that starts while its predecessor still runs sees the predecessor's writes after pdl_wait.
#include <imbrex/hw/sync.hpp>

#include "worlds.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows = 16, columns = 64;

// Adds one to its tile many times; the next kernel may start at once.
struct count_up {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;
    struct arguments {
        matrix_view<float> values;
        int times;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            hw::pdl_launch_dependents(self);
            hw::pdl_wait(self);
            warp_tile<float, rows, columns> tile;
            for (int i = 0; i < args.times; ++i) {
                load(self, tile, args.values.at(block.index().x * rows, 0));
                map(self, tile, [](float x) { return x + 1; });
                store(self, args.values.at(block.index().x * rows, 0), tile);
            }
        });
    }
};

}  // namespace

TEST_CASE("kernels launched with PDL see their predecessors' results") {
    const int blocks = 200;
    for (const world where : worlds()) {
        buffer<float> values(where, blocks * rows * columns, 0.0f);
        const count_up::arguments arguments{matrix(values.upload(), blocks * rows, columns), 20};
        static_assert(hw::uses_pdl<count_up>);
        for (int i = 0; i < 10; ++i) launch<count_up>(where, {blocks}, arguments);
        values.download();
        bool right = true;
        for (const float one : values.values) right = right && one == 200.0f;
        CHECK(right);
    }
}
