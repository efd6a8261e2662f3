// Registers of floats from memory of bf16.
// first: imbrex: load and store do not convert
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct mismatch {
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const bf16> in;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, 16> values;
            load(self, values, args.in.at(0, 0));
        });
    }
};

int main() {
    host::launch<mismatch>({1}, {});
}
