// TMA: loads, stores and reductions of tiles, out-of-bounds edges, tiles of several panels, batches, and multicast.
#include "worlds.hpp"

#include <cmath>
#include <cstring>

using namespace imbrex;
using namespace imbrex_test;

namespace {

enum class way { store, add };

// Each block loads its tile and stores it again.
template <class T, int Rows, int Columns, way Way>
struct through_shared {
    using tile = shared_tile<T, Rows, Columns>;
    static constexpr int warps = 4;
    struct arguments {
        tma_tensor<tile, 3> in;
        tma_tensor<tile, 3> out;
    };
    struct shared_memory {
        tile one;
        transaction_barrier landed;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const grid_dim at = block.index();
        shared.landed.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
            shared.landed.expect(self, tile::bytes);
            load_async(self, shared.one, args.in.tile(at.z, at.y, at.x), shared.landed);
            shared.landed.wait(self, 0);
            if constexpr (Way == way::store) {
                store_async(self, args.out.tile(at.z, at.y, at.x), shared.one);
            } else {
                reduce_add_async(self, args.out.tile(at.z, at.y, at.x), shared.one);
            }
            commit_stores(self);
            wait_stores(self);
        }));
    }
};

template <class T, int Rows, int Columns, way Way>
void check_through_shared(int batches, int rows, int columns) {
    using kernel = through_shared<T, Rows, Columns, Way>;
    // Rows must be a multiple of 16 bytes apart; the columns beyond the matrix must not change.
    const int stride = (columns * static_cast<int>(sizeof(T)) + 15) / 16 * 16 / static_cast<int>(sizeof(T)) + 16;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(rows);
        CAPTURE(columns);
        buffer<T> in(where, static_cast<std::size_t>(batches) * rows * stride);
        buffer<T> out(where, in.values.size());
        fill_random(in.values, 1);
        fill_random(out.values, 2);
        const std::vector<T> before = out.values;
        using view = global_view<T, dimensions<dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, 1>>;
        const auto view_of = [&](buffer<T>& one) {
            return make_tma_tensor<typename kernel::tile>(
                view{one.upload(), {batches, rows, columns}, {static_cast<std::int64_t>(rows) * stride, stride}},
                tma_use::store);
        };
        const typename kernel::arguments args{view_of(in), view_of(out)};
        // A reduction is not repeatable: one schedule only.
        run<kernel>(where, {(columns + Columns - 1) / Columns, (rows + Rows - 1) / Rows, batches}, args,
                    Way == way::add ? 1 : 4);
        out.download();
        int wrong = 0;
        for (std::size_t i = 0; i < before.size(); ++i) {
            const bool inside = static_cast<int>(i % stride) < columns;
            T expected = before[i];
            if (inside && Way == way::store) expected = in.values[i];
            if (inside && Way == way::add) {
                expected = convert<T>(convert<float>(before[i]) + convert<float>(in.values[i]));
            }
            wrong += std::memcmp(&expected, &out.values[i], sizeof(T)) == 0 ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("TMA loads and stores tiles past the edge") {
    for (const int rows : {64, 100, 1}) {
        for (const int columns : {64, 200, 8}) check_through_shared<bf16, 64, 64, way::store>(1, rows, columns);
    }
    check_through_shared<fp16, 8, 256, way::store>(2, 21, 304);
    check_through_shared<float, 16, 16, way::store>(3, 33, 20);
    check_through_shared<float, 32, 8, way::store>(1, 33, 20);
    check_through_shared<std::int8_t, 128, 128, way::store>(1, 130, 144);
    check_through_shared<e4m3, 256, 64, way::store>(2, 300, 80);
    check_through_shared<std::int8_t, 64, 16, way::store>(1, 70, 32);
}

namespace {

// A tile that extends past every edge, loaded by TMA and checked whole.
template <class T>
struct ragged_load {
    using tile = shared_tile<T, 64, 64>;
    static constexpr int warps = 4;
    struct arguments {
        tma_tensor<tile, 2> in;
        matrix_view<T> out;
    };
    struct shared_memory {
        tile one;
        transaction_barrier landed;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.landed.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
            shared.landed.expect(self, tile::bytes);
            load_async(self, shared.one, args.in.at(20, 16), shared.landed);
            shared.landed.wait(self, 0);
            store(self, args.out.at(0, 0), shared.one);
        }));
    }
};

}  // namespace

TEST_CASE_TEMPLATE("TMA loads zeros out of bounds, exact to the element", T, float, bf16, std::int8_t) {
    const int rows = 37, columns = 39, stride = 48;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<T> in(where, rows * stride), out(where, 64 * 64);
        fill_random(in.values, 4, 1.0f, 9.0f);
        fill_random(out.values, 5, 1.0f, 9.0f);
        run<ragged_load<T>>(where, {1},
                            {make_tma_tensor<typename ragged_load<T>::tile>(matrix(in.upload(), rows, columns, stride)),
                             matrix(out.upload(), 64, 64)});
        out.download();
        int wrong = 0;
        for (int row = 0; row < 64; ++row) {
            for (int column = 0; column < 64; ++column) {
                const bool inside = row + 20 < rows && column + 16 < columns;
                const T expected = inside ? in.values[(row + 20) * stride + column + 16] : T{};
                wrong += std::memcmp(&expected, &out.values[row * 64 + column], sizeof(T)) == 0 ? 0 : 1;
            }
        }
        CHECK(wrong == 0);
    }
}

namespace {

// A tile loaded and stored in four subtiles, each with a tensor of its own shape.
struct parts_of_a_tile {
    using tile = shared_tile<bf16, 64, 256>;
    using quarter = shared_tile<bf16, 32, 128>;
    static constexpr int warps = 4;
    struct arguments {
        tma_tensor<quarter, 2> in;
        tma_tensor<quarter, 2> out;
    };
    struct shared_memory {
        tile one;
        transaction_barrier landed;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.landed.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
            shared.landed.expect(self, tile::bytes);
            for (int i = 0; i < 4; ++i) {
                load_async(self, shared.one.subtile<32, 128>(i / 2 * 32, i % 2 * 128), args.in.tile(i / 2, i % 2),
                           shared.landed);
            }
            shared.landed.wait(self, 0);
            // Stored in reverse order, so that each subtile must be at its position.
            for (int i = 0; i < 4; ++i) {
                store_async(self, args.out.tile(i / 2, i % 2),
                            shared.one.subtile<32, 128>((3 - i) / 2 * 32, (3 - i) % 2 * 128));
            }
            commit_stores(self);
            wait_stores(self);
        }));
    }
};

}  // namespace

TEST_CASE("TMA copies subtiles") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<bf16> in(where, 64 * 256), out(where, 64 * 256, bf16(NAN));
        fill_random(in.values, 6);
        run<parts_of_a_tile>(
            where, {1},
            {make_tma_tensor<parts_of_a_tile::quarter>(matrix(in.upload(), 64, 256)),
             make_tma_tensor<parts_of_a_tile::quarter>(matrix(out.upload(), 64, 256), tma_use::store)});
        out.download();
        int wrong = 0;
        for (int row = 0; row < 64; ++row) {
            for (int column = 0; column < 256; ++column) {
                const int from = (row + 32) % 64 * 256 + (column + 128) % 256;
                wrong += out.values[row * 256 + column].bits == in.values[from].bits ? 0 : 1;
            }
        }
        CHECK(wrong == 0);
    }
}

namespace {

// A tile assembled from rows at several positions: parts of a matrix in reverse order, the first of them out of bounds.
struct rows_of_a_tile {
    using tile = shared_tile<bf16, 64, 128>;
    static constexpr int warps = 8;
    struct arguments {
        tma_tensor<tile, 2> in;
        tma_tensor<tile, 2> out;
    };
    struct shared_memory {
        pipeline<tile, 1> ring;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        auto slot = filling.acquire();
                        for (int row = 0; row < 64; row += args.in.copied_rows) {
                            load_rows_async(self, *slot, row, args.in.at(64 - row, 0).out_of_bounds_fill(), slot);
                        }
                    }),
                    single_warps<1>("writer", [&](warp& self) {
                        auto landed = shared.ring.consumer(self);
                        auto one = landed.wait();
                        store_async(self, args.out.tile(0, 0), *one);
                        commit_stores(self);
                        wait_stores(self);
                    }));
    }
};

}  // namespace

TEST_CASE("TMA assembles a tile from rows at several positions") {
    using kernel = rows_of_a_tile;
    for (const world where : worlds()) {
        for (const int rows : {8, 16, 32, 64}) {
            CAPTURE(name_of(where));
            CAPTURE(rows);
            buffer<bf16> in(where, 64 * 128), out(where, 64 * 128, bf16(NAN));
            fill_random(in.values, 8);
            run<kernel>(where, {1},
                        {make_tma_tensor<kernel::tile>(matrix(in.upload(), 64, 128), tma_use::load, rows),
                         make_tma_tensor<kernel::tile>(matrix(out.upload(), 64, 128), tma_use::store)});
            out.download();
            int wrong = 0;
            for (int row = 0; row < 64; ++row) {
                const int from = 64 - row / rows * rows + row % rows;
                for (int column = 0; column < 128; ++column) {
                    const unsigned expected = from < 64 ? in.values[from * 128 + column].bits : 0u;
                    wrong += out.values[row * 128 + column].bits == expected ? 0 : 1;
                }
            }
            CHECK(wrong == 0);
        }
    }
}

#if !defined(__CUDACC__)
TEST_CASE("the checker reports rows beyond a tile, and a tensor of fewer rows that should fill a tile") {
    std::vector<bf16> in(64 * 128), out(64 * 128);
    using rows = rows_of_a_tile;
    const auto beyond = host::check<rows>({1},
                                          {make_tma_tensor<rows::tile>(matrix(in.data(), 64, 128), tma_use::load, 48),
                                           make_tma_tensor<rows::tile>(matrix(out.data(), 64, 128), tma_use::store)},
                                          1);
    REQUIRE(beyond);
    CHECK(beyond->kind == hazard_kind::beyond_limits);
    CHECK(beyond->text().find("rows 48 to 95 are not inside a tile of 64 rows") != std::string::npos);

    using whole = through_shared<bf16, 64, 64, way::store>;
    using view = global_view<bf16, dimensions<dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, 1>>;
    const view some{in.data(), {1, 64, 64}, {64 * 64, 64}};
    const auto short_copy = host::check<whole>(
        {1},
        {make_tma_tensor<whole::tile>(some, tma_use::load, 16), make_tma_tensor<whole::tile>(some, tma_use::store)}, 1);
    REQUIRE(short_copy);
    CHECK(short_copy->kind == hazard_kind::beyond_limits);
    CHECK(short_copy->text().find("made to copy 16 rows at a time; the tile has 64") != std::string::npos);
}
#endif

TEST_CASE("TMA adds tiles to global memory") {
    check_through_shared<float, 64, 64, way::add>(2, 70, 100);
    check_through_shared<bf16, 64, 128, way::add>(1, 64, 128);
    check_through_shared<std::int32_t, 16, 32, way::add>(1, 30, 40);
}

namespace {

// Each block of a cluster loads one half of the tile into both, and stores its own copy.
struct multicast_copy {
    using half = shared_tile<bf16, 32, 64>;
    struct stage {
        half part[2];
    };
    static constexpr int warps = 4;
    static constexpr int cluster = 2;
    struct arguments {
        tma_tensor<half, 2> in;
        tma_tensor<half, 2> out;
        int tiles;
    };
    struct shared_memory {
        pipeline<stage, 2, cluster> ring;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank();
        shared.ring.init(block, 1);
        fence_barriers(block);
        block.cluster_sync();
        block.roles(warps_of_role(block, args, shared, rank));
        block.cluster_sync();
    }

  private:
    template <class Block>
    IMBREX_KERNEL static auto warps_of_role(Block&, const arguments& args, shared_memory& shared, int rank) {
        return single_warps<2>("mover", [&args, &shared, rank](warp& self) {
            if (self.index() == 0) {
                auto filling = shared.ring.producer(self);
                for (int tile = 0; tile < args.tiles; ++tile) {
                    auto slot = filling.acquire();
                    load_multicast(self, slot->part[rank], args.in.tile(2 * tile + rank, 0), slot, 0b11);
                }
            } else {
                auto full = shared.ring.consumer(self);
                for (int tile = 0; tile < args.tiles; ++tile) {
                    auto stage = full.wait();
                    for (int i = 0; i < 2; ++i) {
                        store_async(self, args.out.tile((2 * tile + i) * cluster + rank, 0), stage->part[i]);
                    }
                    commit_stores(self);
                    wait_stores(self);
                }
            }
        });
    }
};

}  // namespace

TEST_CASE("a cluster shares its loads by multicast") {
    const int tiles = 7;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<bf16> in(where, tiles * 64 * 64);
        buffer<bf16> out(where, 2 * in.values.size(), bf16(NAN));
        fill_random(in.values, 3);
        const multicast_copy::arguments args{
            make_tma_tensor<multicast_copy::half>(matrix(in.upload(), tiles * 64, 64)),
            make_tma_tensor<multicast_copy::half>(matrix(out.upload(), 2 * tiles * 64, 64), tma_use::store), tiles};
        run<multicast_copy>(where, {2, 1, 1}, args);
        out.download();
        int wrong = 0;
        for (std::size_t i = 0; i < out.values.size(); ++i) {
            const int row = static_cast<int>(i / 64), column = static_cast<int>(i % 64);
            const int half = row / 64;
            wrong += out.values[i].bits == in.values[(half * 32 + row % 32) * 64 + column].bits ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}
