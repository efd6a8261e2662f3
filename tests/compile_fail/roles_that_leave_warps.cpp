// Roles that do not take all warps of the block.
// expect: the roles of a kernel must take all of its warps
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct kernel {
    static constexpr int warps = 12;
    struct arguments {};
    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments&, SharedMemory&) {
        block.roles(producer([](warp&) {}), consumers<1>([](warpgroup&) {}));
    }
};

void wrong() {
    host::launch<kernel>({1}, {});
}
