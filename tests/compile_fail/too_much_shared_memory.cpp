// A block has at most 227 KB of shared memory.
// expect: a kernel's shared_memory must not exceed 227 KB
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct kernel {
    static constexpr int warps = 4;
    struct arguments {};
    struct shared_memory {
        shared_tile<float, 256, 256> tile;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block&, const arguments&, shared_memory&) {}
};

void wrong() {
    host::launch<kernel>({1}, {});
}
