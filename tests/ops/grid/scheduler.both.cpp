// Tile schedulers: every tile once, for any grid. The block that processes a tile adds one to it, so a missed tile and
// a repeated one both show.
#include <ops/tools.hpp>

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

using counted = warp_tile<int, 16, 8>;

struct one_more {
    IMBREX_FN int operator()(int x) const { return x + 1; }
};

// Adds one to a 64 x 8 or 16 x 8 tile of a column of such tiles.
template <class Tile, class Scope>
IMBREX_KERNEL void count_tile(const Scope& self, const matrix_view<int>& counts, int number) {
    Tile done;
    load(self, done, counts.template tile<Tile>(number, 0));
    map(self, done, one_more{});
    store(self, counts.template tile<Tile>(number, 0), done);
}

// One schedule of the checked world at a time: each run changes the input of the next.
template <class Kernel>
void run_once(world where, grid_dim grid, const typename Kernel::arguments& arguments, int seed) {
    if (where == world::host_checked) {
        const auto found = host::check<Kernel>(grid, arguments, 1, seed);
        INFO((found ? found->text() : std::string()));
        REQUIRE(!found);
    } else {
        run<Kernel>(where, grid, arguments, 1);
    }
}

struct static_kernel {
    static constexpr int warps = 2;
    struct arguments {
        matrix_view<int> first, second;
        int tiles;
    };
    struct shared_memory {};
    // Both warps of a block iterate over the same tiles.
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        block.each_warp([&](warp& self) {
            for (const int tile : static_tile_scheduler(block, args.tiles)) {
                count_tile<counted>(self, self.index() == 0 ? args.first : args.second, tile);
            }
        });
    }
};

TEST_CASE("static scheduler: each tile once, for any grid") {
    const grid_dim grids[] = {{1, 1, 1}, {3, 1, 1}, {7, 2, 1}, {2, 2, 2}, {1, 1, 5}, {40, 1, 1}};
    for (const world where : worlds()) {
        for (const grid_dim grid : grids) {
            for (const int tiles : {0, 1, 8, 23, 24}) {
                const std::size_t count = 16 * 8 * static_cast<std::size_t>(tiles) + 1;
                buffer<int> first(where, count, 5), second(where, count, 7);
                run_once<static_kernel>(
                    where, grid, {matrix(first.upload(), 16 * tiles, 8), matrix(second.upload(), 16 * tiles, 8), tiles},
                    3);
                first.download();
                second.download();
                tally compared(str_cat(name_of(where), ", ", tiles, " tiles on ", grid.x, " x ", grid.y, " x ", grid.z,
                                       " blocks"));
                for (std::size_t i = 0; i < count; ++i) {
                    const int more = i + 1 < count ? 1 : 0;  // the last is beyond the tiles
                    compared.expect(first.values[i] == 5 + more, "first", i, "is", first.values[i]);
                    compared.expect(second.values[i] == 7 + more, "second", i, "is", second.values[i]);
                }
            }
        }
    }
}

TEST_CASE("rasterisation_groups: a bijection that proceeds by groups of rows") {
    for (int rows = 1; rows <= 9; ++rows) {
        for (int columns = 1; columns <= 7; ++columns) {
            for (int band = 1; band <= 10; ++band) {
                const rasterisation_groups order{rows, columns, band};
                bool within = true, in_its_band = true, once = true;
                std::vector<int> seen(rows * columns, 0);
                for (int i = 0; i < order.tiles(); ++i) {
                    const tile_coord place = order.at(i);
                    within =
                        within && place.row >= 0 && place.row < rows && place.column >= 0 && place.column < columns;
                    in_its_band = in_its_band && place.row / band == i / (band * columns);
                    if (within) ++seen[place.row * columns + place.column];
                }
                for (const int times : seen) once = once && times == 1;
                INFO(rows, " x ", columns, " tiles in bands of ", band);
                CHECK(order.tiles() == rows * columns);
                CHECK(within);
                CHECK(in_its_band);
                CHECK(once);
            }
        }
    }
}

// The example of the header.
constexpr rasterisation_groups drawn{4, 3, 2};
static_assert(drawn.at(0).row == 0 && drawn.at(0).column == 0);
static_assert(drawn.at(1).row == 1 && drawn.at(1).column == 0);
static_assert(drawn.at(4).row == 0 && drawn.at(4).column == 2);
static_assert(drawn.at(9).row == 3 && drawn.at(9).column == 1);
static_assert(drawn.at(11).row == 3 && drawn.at(11).column == 2);

// A persistent kernel: one warp draws, a warp and a warpgroup read. The order is that of rasterisation_groups.
template <int Stages, int Ahead>
struct queue_kernel {
    static constexpr int warps = 12;
    struct arguments {
        matrix_view<int> by_warp, by_group;
        rasterisation_groups order;
        int* counter;
    };
    struct shared_memory {
        dynamic_tile_scheduler<Stages, int, Ahead> queue;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const int tiles = args.order.tiles();
        const auto place = [&](int number) {
            const tile_coord at = args.order.at(number);
            return at.row * args.order.columns + at.column;
        };
        smem.queue.init(block, 1 + 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto drawing = smem.queue.draw(self, block, tiles, args.counter);
                        while (drawing.next() < tiles) {}
                    }),
                    single_warps<1>("reader",
                                    [&](warp& self) {
                                        auto reading = smem.queue.read(self);
                                        for (int tile = reading.next(); tile < tiles; tile = reading.next()) {
                                            count_tile<counted>(self, args.by_warp, place(tile));
                                        }
                                    }),
                    // Holds each item until it has the next, if the ring has two stages.
                    consumers<1>([&](warpgroup& self) {
                        auto reading = smem.queue.read(self);
                        auto held = reading.hold();
                        while (held.get() < tiles) {
                            if constexpr (Ahead == 1) {
                                count_tile<warpgroup_tile<int, 64, 8>>(self, args.by_group, place(held.get()));
                                held.release();
                                held = reading.hold();
                            } else {
                                auto next = reading.hold();
                                count_tile<warpgroup_tile<int, 64, 8>>(self, args.by_group, place(held.get()));
                                held = std::move(next);
                            }
                        }
                    }));
    }
};

template <int Stages, int Ahead = Stages>
void test_queue() {
    struct problem {
        int blocks, rows, columns;
    };
    for (const world where : worlds()) {
        for (const problem one : {problem{1, 5, 4}, problem{3, 1, 1}, problem{4, 7, 5}, problem{50, 4, 6}}) {
            for (int seed = 0; seed < 8; ++seed) {
                const int tiles = one.rows * one.columns;
                buffer<int> by_warp(where, tiles * 16 * 8, 100), by_group(where, tiles * 64 * 8, 200),
                    counter(where, 1, 0);
                int* const from = counter.upload();
                run_once<queue_kernel<Stages, Ahead>>(where, {one.blocks, 1, 1},
                                                      {matrix(by_warp.upload(), tiles * 16, 8),
                                                       matrix(by_group.upload(), tiles * 64, 8),
                                                       {one.rows, one.columns, 2},
                                                       seed % 4 == 3 ? nullptr : from},
                                                      seed);
                by_warp.download();
                by_group.download();
                counter.download();
                tally compared(str_cat(name_of(where), ", ", tiles, " tiles from a queue of depth ", Stages, ", ",
                                       one.blocks, " blocks"));
                for (std::size_t i = 0; i < by_warp.values.size(); ++i) {
                    compared.expect(by_warp.values[i] == 101, "the warp's element", i, "is", by_warp.values[i]);
                }
                for (std::size_t i = 0; i < by_group.values.size(); ++i) {
                    compared.expect(by_group.values[i] == 201, "the group's element", i, "is", by_group.values[i]);
                }
                // Ready for the next launch.
                CHECK(counter.values[0] == 0);
            }
        }
    }
}

TEST_CASE("dynamic scheduler, with and without a counter: each tile once, read by two roles") {
    test_queue<1>();
    test_queue<2>();
    test_queue<3>();
    test_queue<4, 2>();
    test_queue<3, 1>();
}

// Readers count each tile before they release it; the drawing warp compares the count.
template <int Stages, int Ahead>
struct patient_kernel {
    static constexpr int warps = 8;
    struct arguments {
        int* counter;
        int* reported;
        int* most;  // drawn and not yet counted
        int tiles;
    };
    struct shared_memory {
        dynamic_tile_scheduler<Stages, int, Ahead> queue;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.queue.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto drawing = smem.queue.draw(self, block, args.tiles, args.counter);
                        int most = 0;
                        for (int drawn = 0, number = 0; number < args.tiles; ++drawn) {
                            number = drawing.draw();
                            // Reading the counter adds one.
                            const int reported = hw::fetch_increment(self, args.reported, source::current()) - drawn;
                            most = drawn + 1 - reported > most ? drawn + 1 - reported : most;
                            drawing.publish(number);
                        }
                        hw::put_global(self, args.most, most, source::current());
                    }),
                    single_warps<1>("reader", [&](warp& self) {
                        auto reading = smem.queue.read(self);
                        for (auto held = reading.hold(); held.get() < args.tiles; held = reading.hold()) {
                            hw::fetch_increment(self, args.reported, source::current());
                            held.release();
                        }
                    }));
    }
};

template <int Stages, int Ahead>
void test_patience() {
    for (const world where : worlds()) {
        for (int seed = 0; seed < 20; ++seed) {
            CAPTURE(name_of(where));
            CAPTURE(seed);
            buffer<int> counter(where, 1, 0), reported(where, 1, 0), most(where, 1, -1);
            run_once<patient_kernel<Stages, Ahead>>(where, {1, 1, 1},
                                                    {counter.upload(), reported.upload(), most.upload(), 30}, seed);
            most.download();
            CHECK(most.values[0] >= 1);
            CHECK(most.values[0] <= Ahead);
        }
    }
}

TEST_CASE("the dynamic scheduler draws at most Ahead tiles ahead") {
    test_patience<1, 1>();
    test_patience<4, 1>();
    test_patience<4, 2>();
    test_patience<4, 4>();
}

}  // namespace
