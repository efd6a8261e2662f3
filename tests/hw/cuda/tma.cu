// Bulk tensor copies: loads, stores and reductions of tiles in bounds and past the edge, with one and several panels,
// in every swizzle width, in batches, and with TMA multicast.
#include <imbrex/hw/cuda/encode.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/sync.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <hw/cuda/support.hpp>

using namespace hw_test;

namespace {

template <class Tile>
struct tensor_view {
    static constexpr int rank = 3;
    using element = typename Tile::element;
    hw::tensor_map map;

#if !IMBREX_DEVICE_WORLD
    // Required by the host world's copies; these tests run on the device only.
    global_tile<element> rectangle(const hw::tma_coordinate&) const {
        return {};
    }
    bool inside(const hw::tma_coordinate&) const {
        return true;
    }
#endif
};

template <class T>
constexpr hw::tensor_map_element element_kind() {
    if constexpr (std::is_same_v<T, float>) return hw::tensor_map_element::float32;
    if constexpr (std::is_same_v<T, bf16>) return hw::tensor_map_element::bfloat16;
    if constexpr (std::is_same_v<T, fp16>) return hw::tensor_map_element::float16;
    if constexpr (std::is_same_v<T, std::int32_t>) return hw::tensor_map_element::int32;
    return hw::tensor_map_element::uint8;
}

// A batch of matrices whose rows are `stride` elements apart.
struct shape {
    int batches, rows, columns, stride;
    std::size_t elements() const { return static_cast<std::size_t>(batches) * rows * stride; }
};

template <class Tile, int BoxRows = Tile::rows>
tensor_view<Tile> view_of(typename Tile::element* pointer, const shape& s) {
    using element = typename Tile::element;
    tensor_view<Tile> view;
    hw::tensor_map_parameters tensor;
    tensor.pointer = pointer;
    tensor.element = element_kind<element>();
    tensor.rank = 3;
    tensor.extents[0] = static_cast<std::uint64_t>(s.columns);
    tensor.extents[1] = static_cast<std::uint64_t>(s.rows);
    tensor.extents[2] = static_cast<std::uint64_t>(s.batches);
    tensor.strides_bytes[0] = static_cast<std::uint64_t>(s.stride) * sizeof(element);
    tensor.strides_bytes[1] = tensor.strides_bytes[0] * static_cast<std::uint64_t>(s.rows);
    tensor.box[0] = Tile::layout::panel_columns;
    tensor.box[1] = BoxRows;
    tensor.box[2] = 1;
    tensor.swizzle_bytes = Tile::layout::swizzle_bytes;
    REQUIRE(hw::encode(view.map, tensor));
    return view;
}

// One block loads one tile of each matrix, exposes it by visit, and stores or adds it elsewhere.
template <class Tile>
struct tile_copy {
    static constexpr int warps = 4;
    using element = typename Tile::element;
    struct arguments {
        tensor_view<Tile> from, to;
        element* seen;
        bool add;
    };
    struct shared_memory {
        Tile tile;
        barrier_word landed;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const grid_dim at = block.index(), size = block.count();
        const hw::tma_coordinate where{{at.x * Tile::columns, at.y * Tile::rows, at.z, 0, 0}};
        element* seen = args.seen + (at.x + size.x * (at.y + size.y * at.z)) * (Tile::rows * Tile::columns);
        hw::barrier_init(block, smem.landed, 1);
        hw::barrier_init_fence(block);
        block.sync();
        block.each_warp([&](auto& warp) {
            if (warp.index() != 0) return;
            hw::prefetch_map(warp, args.from);
            hw::barrier_expect(warp, smem.landed, Tile::bytes);
            hw::tma_load(warp, smem.tile, args.from, where, smem.landed);
        });
        hw::barrier_wait(block, smem.landed, 0);
        hw::visit_shared(
            block, hw::use::update, source{},
            [&](int row, int column, element& value) { seen[row * Tile::columns + column] = value; }, smem.tile);
        hw::async_fence(block);
        block.sync();
        block.each_warp([&](auto& warp) {
            if (warp.index() != 0) return;
            if (args.add) {
                hw::tma_reduce_add(warp, args.to, where, smem.tile);
            } else {
                hw::tma_store(warp, args.to, where, smem.tile);
            }
            hw::bulk_commit(warp);
            hw::bulk_wait_read<0>(warp);
            hw::bulk_wait<0>(warp);
        });
    }
};

template <class T, int Rows, int Columns>
void check_tile_copy(const shape& s, bool add = false) {
    using tile = shared_tile<T, Rows, Columns>;
    CAPTURE(sizeof(T));
    CAPTURE(Rows);
    CAPTURE(Columns);
    CAPTURE(s.rows);
    CAPTURE(s.columns);
    CAPTURE(tile::layout::swizzle_bytes);
    // Small integers add without rounding.
    std::vector<T> input(s.elements()), before(s.elements());
    std::uniform_int_distribution<int> numbers(-8, 8);
    for (T& value : input) value = convert<T>(static_cast<float>(numbers(generator())));
    for (T& value : before) value = convert<T>(static_cast<float>(numbers(generator())));

    const grid_dim grid{(s.columns + Columns - 1) / Columns, (s.rows + Rows - 1) / Rows, s.batches};
    std::vector<T> seen(static_cast<std::size_t>(grid.x) * grid.y * grid.z * Rows * Columns, convert<T>(0.0F));
    std::vector<T> after = before;
    for (int batch = 0; batch < s.batches; ++batch) {
        for (int row = 0; row < s.rows; ++row) {
            for (int column = 0; column < s.columns; ++column) {
                const std::size_t place = (static_cast<std::size_t>(batch) * s.rows + row) * s.stride + column;
                const int block = column / Columns + grid.x * (row / Rows + grid.y * batch);
                seen[(static_cast<std::size_t>(block) * Rows + row % Rows) * Columns + column % Columns] = input[place];
                after[place] =
                    add ? convert<T>(convert<float>(before[place]) + convert<float>(input[place])) : input[place];
            }
        }
    }
    const device_buffer<T> from(input), to(before), shown(seen.size());
    device::launch<tile_copy<tile>>(grid,
                                    {view_of<tile>(from.data(), s), view_of<tile>(to.data(), s), shown.data(), add});
    CHECK(differing(shown.read(), seen) == 0);
    CHECK(differing(to.read(), after) == 0);
}

// Each block of a pair loads one half of the tile's rows into both.
struct multicast {
    static constexpr int warps = 4;
    static constexpr int cluster = 2;
    using tile = shared_tile<bf16, 64, 128>;
    struct arguments {
        tensor_view<tile> from;
        bf16* seen;
        int rounds;
    };
    struct shared_memory {
        tile all;
        barrier_word landed, read;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const int rank = block.cluster_rank();
        bf16* seen = args.seen + block.index().x * (64 * 128);
        hw::barrier_init(block, smem.landed, 1);
        hw::barrier_init(block, smem.read, 8);
        hw::barrier_init_fence(block);
        block.cluster_sync();
        for (int round = 0; round < args.rounds; ++round) {
            block.each_warp([&](auto& warp) {
                if (warp.index() != 0) return;
                // Not before both blocks have read the previous contents.
                hw::barrier_wait(warp, smem.read, static_cast<unsigned>(round - 1));
                hw::barrier_expect(warp, smem.landed, tile::bytes);
                hw::tma_load_multicast(warp, smem.all.template subtile<32>(rank * 32), args.from,
                                       {{0, rank * 32, round, 0, 0}}, smem.landed, 3);
            });
            hw::barrier_wait(block, smem.landed, static_cast<unsigned>(round));
            hw::visit_shared(
                block, hw::use::read, source{},
                [&](int row, int column, const bf16& value) {
                    if (round == args.rounds - 1) seen[row * 128 + column] = value;
                },
                smem.all);
            for (int other = 0; other < cluster; ++other) hw::barrier_arrive_at(block, smem.read, other);
        }
        block.cluster_sync();
    }
};

}  // namespace

TEST_CASE("TMA loads and stores tiles in every width of the swizzle") {
    if (skipped()) return;
    check_tile_copy<bf16, 64, 64>({1, 128, 192, 192});
    check_tile_copy<bf16, 16, 32>({1, 48, 64, 64});
    check_tile_copy<bf16, 8, 16>({1, 40, 48, 48});
    check_tile_copy<bf16, 8, 8>({1, 24, 24, 24});
    check_tile_copy<float, 32, 32>({1, 64, 64, 64});
    check_tile_copy<e4m3, 64, 128>({1, 128, 256, 256});
    check_tile_copy<std::int32_t, 16, 16>({1, 32, 48, 48});
}

// Stores write whole 16-byte chunks, so rows end at one here; tests/ops/memory/tma.both.cpp loads other widths.
TEST_CASE("TMA fills out-of-bounds elements with zeros and does not write them") {
    if (skipped()) return;
    check_tile_copy<bf16, 64, 64>({1, 100, 136, 144});
    check_tile_copy<float, 32, 32>({1, 33, 28, 32});
    check_tile_copy<std::int8_t, 16, 64>({1, 7, 96, 112});
}

TEST_CASE("a tile of several panels is several copies") {
    if (skipped()) return;
    check_tile_copy<bf16, 64, 256>({1, 128, 512, 512});
    check_tile_copy<bf16, 40, 96>({1, 90, 200, 208});
    check_tile_copy<float, 256, 64>({1, 300, 68, 72});
}

TEST_CASE("tiles are copied from batches, each with its own edges") {
    if (skipped()) return;
    check_tile_copy<bf16, 64, 128>({5, 70, 136, 144});
    check_tile_copy<e4m3, 32, 64>({3, 33, 64, 80});
}

TEST_CASE("TMA adds to global memory") {
    if (skipped()) return;
    check_tile_copy<float, 64, 64>({2, 100, 92, 96}, true);
    check_tile_copy<bf16, 64, 128>({1, 64, 128, 128}, true);
    check_tile_copy<std::int32_t, 16, 32>({1, 20, 28, 32}, true);
}

TEST_CASE("a multicast copy lands in all blocks of a cluster") {
    if (skipped()) return;
    constexpr int rounds = 5, blocks = 4;
    const shape s{rounds, 64, 128, 128};
    const std::vector<bf16> input = random_bits<bf16>(s.elements());
    const device_buffer<bf16> from(input), seen(blocks * 64 * 128);
    device::launch<multicast>({blocks, 1, 1}, {view_of<multicast::tile, 32>(from.data(), s), seen.data(), rounds});
    std::vector<bf16> expected;
    for (int block = 0; block < blocks; ++block) {
        expected.insert(expected.end(), input.end() - 64 * 128, input.end());
    }
    CHECK(differing(seen.read(), expected) == 0);
}

TEST_CASE("an error of the driver is reported with all parameters") {
    if (skipped()) return;
    const device_buffer<bf16> memory(4096);
    hw::tensor_map map;
    hw::tensor_map_parameters tensor;
    tensor.pointer = memory.data() + 1;
    tensor.element = hw::tensor_map_element::bfloat16;
    tensor.extents[0] = 64;
    tensor.extents[1] = 16;
    tensor.strides_bytes[0] = 128;
    tensor.box[0] = 64;
    tensor.box[1] = 8;
    tensor.swizzle_bytes = 128;
    CHECK_THROWS_WITH_AS(hw::encode(map, tensor), doctest::Contains("extents 64 x 16"), cuda_error);
    tensor.swizzle_bytes = 48;
    CHECK_THROWS_WITH_AS(hw::encode(map, tensor), doctest::Contains("not 48"), invalid_argument);
}
