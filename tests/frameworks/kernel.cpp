#include "kernel.hpp"

#include <imbrex/imbrex.hpp>

namespace {

using namespace imbrex;

// Warp 0 writes a value, and warp 1 reads it after a sync of both. Without the sync the two race.
template <bool Correct>
struct hand_over {
    static constexpr int warps = 2;
    struct arguments {
        int* value;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, hw::no_shared_memory&) {
        block.each_warp([&](warp& self) {
            if (self.index() == 0) put(self, args.value, 1);
            if (Correct) hw::named_sync(self, hw::first_free_named_barrier, 2);
            if (self.index() == 1) get(self, args.value);
        });
    }
};

}  // namespace

namespace imbrex_frameworks {

std::optional<hazard> check_correct_kernel() {
    int value = 0;
    return host::check<hand_over<true>>({1}, {&value}, 100);
}
std::optional<hazard> check_racing_kernel() {
    int value = 0;
    return host::check<hand_over<false>>({1}, {&value}, 100);
}

}  // namespace imbrex_frameworks
