// architectures: 80 89 90a 100a 120a
// int8 products by mma.sync, and a block-wide and grid-wide reduction of the result.
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct integer_product {
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const std::int8_t> a, b;
        matrix_view<std::int32_t> c;
        grid_scratch<std::int32_t> scratch;
        std::int32_t* sum;
    };
    struct shared_memory {
        shared_tile<std::int8_t, 32, 64> a, b;
        shared_tile<std::int32_t, 32, 32> c;
        shared_vector<std::int32_t, 1> part;
        shared_vector<int, 1> flag;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        load(block, shared.a, args.a.at(0, 0));
        load(block, shared.b, args.b.at(0, 0));
        block.sync();
        block.each_warp([&](warp& self) {
            warp_tile<std::int32_t, 32, 32> sum;
            fill(self, sum, 0);
            mma_abt(self, sum, shared.a, shared.b);
            store(self, shared.c, sum);
        });
        block.sync();
        store(block, args.c.at(0, 0), shared.c);
        reduce_grid(block, reduce(block, shared.c, functional::add{}, 0, shared.part), functional::add{}, 0,
                    args.scratch, args.sum, shared.flag);
    }
};

void launch_integer_product(const integer_product::arguments& arguments) {
    device::launch<integer_product>({1}, arguments);
}
