// architectures: 90a 100a 120a
// TMA and mbarriers: a pipeline from global memory through shared memory and back.
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct pipelined_copy {
    using tile = shared_tile<bf16, 64, 64>;
    static constexpr int warps = 8;
    struct arguments {
        tma_tensor<tile, 2> in, out;
        int tiles;
    };
    struct shared_memory {
        pipeline<tile, 4> ring;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int tile : static_tile_scheduler(block, args.tiles)) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in.tile(tile, 0), slot);
                        }
                    }),
                    single_warps<1>("writer", [&](warp& self) {
                        auto full = shared.ring.consumer(self);
                        for (int tile : static_tile_scheduler(block, args.tiles)) {
                            auto stage = full.wait();
                            store_async(self, args.out.tile(tile, 0), *stage);
                            commit_stores(self);
                            wait_stores_read(self);
                        }
                    }));
    }
};

void launch_pipelined_copy(const pipelined_copy::arguments& arguments) {
    device::launch<pipelined_copy>({132}, arguments);
}
