// The last of many warps to arrive adds up the partial results of all; repeated launches work.
#include <imbrex/ops/grid/last_block.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>

#include "worlds.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct add_up {
    static constexpr int warps = 4;
    using tile = warp_tile<float, 16, 16>;
    struct arguments {
        float* parts;  // of each warp of the grid
        float* result;
        int* counter;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        const int number = block.index().x, all = block.count().x * warps;
        block.each_warp([&](warp& self) {
            const int own = number * warps + self.index();
            tile sum;
            fill(self, sum, 0.0f);
            map_indexed(self, sum,
                        [&](int row, int column, float) { return static_cast<float>(own + row * 16 + column); });
            save(self, args.parts + own * 256, sum);
            if (!is_last_to_arrive(self, args.counter, all)) return;
            fill(self, sum, 0.0f);
            for (int i = 0; i < all; ++i) {
                tile part;
                restore(self, part, args.parts + i * 256);
                combine(self, sum, part, functional::add{});
            }
            store(self, matrix(args.result, 16, 16).at(0, 0), sum);
        });
    }
};

}  // namespace

TEST_CASE("the last warp to arrive sees all partial results, and the counter is zero again") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        constexpr int blocks = 20, all = blocks * add_up::warps;
        buffer<float> parts(where, all * 256), result(where, 256);
        buffer<int> counter(where, 1, 0);
        const add_up::arguments args{parts.upload(), result.upload(), counter.upload()};
        for (int replay = 0; replay < 3; ++replay) {
            result.values.assign(256, -1.0f);
            result.upload();
            run<add_up>(where, {blocks}, args, 3);
            result.download();
            for (int i = 0; i < 256; ++i) REQUIRE(result.values[i] == float(all * i + all * (all - 1) / 2));
            counter.download();
            CHECK(counter.values[0] == 0);
        }
    }
}
