// Register tiles on the device: the position of each element, in both layouts and every element size; loads and stores
// through shared and global memory; conversions, also across lanes; reductions along rows and columns.
#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <hw/cuda/support.hpp>

using namespace hw_test;

namespace {

// input -> shared tile -> registers -> `seen`, by visit, and -> another shared tile -> `stored`. The register tile is a
// subtile of the shared tiles.
template <class T, int Rows, int Columns, int Warps, register_layout Layout, int TileRows = Rows,
          int TileColumns = Columns>
struct through_shared {
    static constexpr int warps = Warps;
    using tile = shared_tile<T, TileRows, TileColumns>;
    struct arguments {
        const T* input;
        T* seen;
        T* stored;
        int first_row, first_column;
    };
    struct shared_memory {
        tile from, to;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        hw::visit_shared(
            block, hw::use::write, source{},
            [&](int row, int column, T& from, T& to) {
                from = args.input[row * TileColumns + column];
                to = from;
            },
            smem.from, smem.to);
        block.sync();
        hw::fragment<T, Rows, Columns, Warps, Layout> held;
        hw::load_shared(block, held, smem.from.template subtile<Rows, Columns>(args.first_row, args.first_column));
        hw::visit(
            block, hw::use::update, source{},
            [&](int row, int column, T& value) {
                args.seen[row * Columns + column] = value;
                // Other values than the current ones, so that a missing store shows.
                unsigned char* bytes = reinterpret_cast<unsigned char*>(&value);
                bytes[0] = static_cast<unsigned char>(bytes[0] ^ 0x55);
            },
            held);
        hw::store_shared(block, smem.to.template subtile<Rows, Columns>(args.first_row, args.first_column), held);
        block.sync();
        hw::visit_shared(
            block, hw::use::read, source{},
            [&](int row, int column, const T& value) { args.stored[row * TileColumns + column] = value; }, smem.to);
    }
};

template <class T, int Rows, int Columns, int Warps, register_layout Layout, int TileRows = Rows,
          int TileColumns = Columns>
void check_through_shared(int first_row = 0, int first_column = 0) {
    CAPTURE(Rows);
    CAPTURE(Columns);
    CAPTURE(Warps);
    CAPTURE(sizeof(T));
    CAPTURE(static_cast<int>(Layout));
    const std::vector<T> input = random_bits<T>(TileRows * TileColumns);
    std::vector<T> expected_seen(Rows * Columns), expected_stored = input;
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; ++column) {
            T& value = expected_stored[(first_row + row) * TileColumns + first_column + column];
            expected_seen[row * Columns + column] = value;
            reinterpret_cast<unsigned char*>(&value)[0] ^= 0x55;
        }
    }
    const device_buffer<T> from(input), seen(expected_seen.size()), stored(input.size());
    using kernel = through_shared<T, Rows, Columns, Warps, Layout, TileRows, TileColumns>;
    device::launch<kernel>({1, 1, 1}, {from.data(), seen.data(), stored.data(), first_row, first_column});
    CHECK(differing(seen.read(), expected_seen) == 0);
    CHECK(differing(stored.read(), expected_stored) == 0);
}

// A rectangle of global memory that may extend past any edge, to registers, to `seen`; and registers filled from
// `input` to another rectangle.
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
struct through_global {
    static constexpr int warps = Warps;
    struct arguments {
        global_tile<const T> from;
        global_tile<T> to;
        const T* input;
        T* seen;
        T fill;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        hw::fragment<T, Rows, Columns, Warps, Layout> held;
        hw::load_global(block, held, args.from, args.fill);
        hw::visit(
            block, hw::use::update, source{},
            [&](int row, int column, T& value) {
                args.seen[row * Columns + column] = value;
                value = args.input[row * Columns + column];
            },
            held);
        hw::store_global(block, args.to, held);
    }
};

struct rectangle {
    int offset, stride, rows, columns;
};

template <class T, int Rows, int Columns, int Warps, register_layout Layout>
void check_through_global() {
    const rectangle rectangles[] = {
        {0, Columns, Rows, Columns},
        {0, Columns + 8, Rows - 3, Columns},
        {0, Columns + 8, 1000, Columns - 1},
        {1, Columns + 3, Rows, Columns},
        {2, Columns + 2, Rows - 7, 2000},
        {3, Columns + 16, 5, 3},
        {0, Columns, 0, Columns},
        {0, Columns, Rows, 0},
        {0, Columns, -4, Columns},
        {4, Columns + 4, Rows, Columns - 10},
    };
    const std::vector<T> memory = random_bits<T>((Rows + 2) * (Columns + 32));
    const std::vector<T> input = random_bits<T>(Rows * Columns);
    const T fill = convert<T>(3.0F);
    const device_buffer<T> from(memory), given(input);
    for (const rectangle& r : rectangles) {
        CAPTURE(r.offset);
        CAPTURE(r.stride);
        CAPTURE(r.rows);
        CAPTURE(r.columns);
        std::vector<T> expected_seen(Rows * Columns, fill), expected_stored(memory.size(), poisoned<T>());
        for (int row = 0; row < Rows && row < r.rows; ++row) {
            for (int column = 0; column < Columns && column < r.columns; ++column) {
                const std::size_t place = static_cast<std::size_t>(r.offset + row * r.stride + column);
                expected_seen[row * Columns + column] = memory[place];
                expected_stored[place] = input[row * Columns + column];
            }
        }
        const device_buffer<T> seen(expected_seen.size()), stored(memory.size());
        device::launch<through_global<T, Rows, Columns, Warps, Layout>>(
            {1, 1, 1}, {{from.data() + r.offset, r.stride, r.rows, r.columns},
                        {stored.data() + r.offset, r.stride, r.rows, r.columns},
                        given.data(),
                        seen.data(),
                        fill});
        CHECK(differing(seen.read(), expected_seen) == 0);
        CHECK(differing(stored.read(), expected_stored) == 0);
    }
}

template <class To, class From, int Rows, int Columns, int Warps, register_layout Layout>
struct conversion {
    static constexpr int warps = Warps;
    struct arguments {
        const From* input;
        To* output;
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        hw::fragment<From, Rows, Columns, Warps, Layout> from;
        hw::fragment<To, Rows, Columns, Warps, Layout> to;
        hw::visit(
            block, hw::use::write, source{},
            [&](int row, int column, From& value) { value = args.input[row * Columns + column]; }, from);
        hw::convert_fragment(block, to, from, source{});
        hw::visit(
            block, hw::use::read, source{},
            [&](int row, int column, To& value) { args.output[row * Columns + column] = value; }, to);
    }
};

template <class To, class From, int Rows = 32, int Columns = 48, int Warps = 1,
          register_layout Layout = register_layout::row_major>
void check_conversion(float range = 300.0F) {
    CAPTURE(name_of<To>());
    CAPTURE(name_of<From>());
    const std::vector<From> input = random_numbers<From>(Rows * Columns, range);
    std::vector<To> expected(input.size());
    for (std::size_t i = 0; i < input.size(); ++i) expected[i] = convert<To>(input[i]);
    const device_buffer<From> from(input);
    const device_buffer<To> to(input.size());
    device::launch<conversion<To, From, Rows, Columns, Warps, Layout>>({1, 1, 1}, {from.data(), to.data()});
    CHECK(differing(to.read(), expected) == 0);
}

// Integers, so that sums are exact in any order.
template <int Rows, int Columns, int Warps>
struct reductions {
    static constexpr int warps = Warps;
    struct arguments {
        const float* input;
        float *row_sums, *row_maxima, *column_sums, *combined;
        const float *row_scale, *column_bias;
        int valid_rows, valid_columns;
    };
    struct shared_memory {
        shared_vector<float, 4 * Columns> scratch;
        shared_vector<float, Rows> rows;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        if constexpr (Warps == 4) {
            block.each_warpgroup([&](auto& group) { work(group, args, smem); });
        } else {
            block.each_warp([&](auto& warp) { work(warp, args, smem); });
        }
    }

    template <class Scope>
    IMBREX_KERNEL static void work(Scope& scope, const arguments& args, shared_memory& smem) {
        const auto add = [](float a, float b) { return a + b; };
        const auto larger = [](float a, float b) { return a > b ? a : b; };
        hw::fragment<float, Rows, Columns, Warps> tile;
        hw::row_fragment<float, Rows, Warps> sums, maxima, scale;
        hw::column_fragment<float, Columns> column_sums, bias;
        hw::visit(
            scope, hw::use::write, source{},
            [&](int row, int column, float& value) { value = args.input[row * Columns + column]; }, tile);
        hw::visit_rows(
            scope, hw::use::write, source{},
            [&](int, float& sum, float& most) {
                sum = 0;
                most = -1e30F;
            },
            sums, maxima);
        hw::visit_columns(
            scope, hw::use::write, source{}, [&](int, float& sum) { sum = 0; }, column_sums);
        hw::fold_rows(scope, sums, tile, add, source{});
        hw::combine_rows(scope, sums, add, source{});
        hw::fold_rows(scope, maxima, tile, larger, source{});
        hw::combine_rows(scope, maxima, larger, source{});
        hw::fold_columns(scope, column_sums, tile, add, source{});
        hw::combine_columns(scope, column_sums, add, source{});
        if constexpr (Warps == 4) hw::exchange_columns(scope, column_sums, smem.scratch, add, source{});
        hw::store_rows(scope, args.row_sums, args.valid_rows, sums);
        hw::store_columns(scope, args.column_sums, args.valid_columns, column_sums);
        // Through a shared vector and back.
        hw::store_vector(scope, smem.rows, maxima, source{});
        scope.sync();
        hw::load_vector(scope, maxima, smem.rows, source{});
        hw::store_rows(scope, args.row_maxima, Rows, maxima);

        hw::load_rows(scope, scale, args.row_scale, args.valid_rows, 2.0F);
        hw::load_columns(scope, bias, args.column_bias, args.valid_columns, 5.0F);
        hw::visit(
            scope, hw::use::update, source{},
            [&](int, int, float& value, const float& by_row, const float& by_column) {
                value = value * by_row + by_column;
            },
            tile, scale, bias);
        hw::visit(
            scope, hw::use::read, source{},
            [&](int row, int column, const float& value) { args.combined[row * Columns + column] = value; }, tile);
    }
};

template <int Rows, int Columns, int Warps>
void check_reductions(int valid_rows, int valid_columns) {
    std::vector<float> input(Rows * Columns), scale(Rows), bias(Columns);
    std::uniform_int_distribution<int> numbers(-50, 50);
    for (std::vector<float>* values : {&input, &scale, &bias}) {
        for (float& value : *values) value = static_cast<float>(numbers(generator()));
    }
    std::vector<float> row_sums(Rows, 0.0F), row_maxima(Rows, -1e30F), column_sums(Columns, 0.0F),
        combined(input.size());
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; ++column) {
            const float value = input[row * Columns + column];
            row_sums[row] += value;
            column_sums[column] += value;
            row_maxima[row] = value > row_maxima[row] ? value : row_maxima[row];
            combined[row * Columns + column] =
                value * (row < valid_rows ? scale[row] : 2.0F) + (column < valid_columns ? bias[column] : 5.0F);
        }
    }
    for (int row = valid_rows; row < Rows; ++row) row_sums[row] = poisoned<float>();
    for (int column = valid_columns; column < Columns; ++column) column_sums[column] = poisoned<float>();
    const device_buffer<float> from(input), by_row(scale), by_column(bias), sums(Rows), maxima(Rows), columns(Columns),
        all(input.size());
    device::launch<reductions<Rows, Columns, Warps>>(
        {1, 1, 1}, {from.data(), sums.data(), maxima.data(), columns.data(), all.data(), by_row.data(),
                    by_column.data(), valid_rows, valid_columns});
    CHECK(differing(sums.read(), row_sums) == 0);
    CHECK(differing(maxima.read(), row_maxima) == 0);
    CHECK(differing(columns.read(), column_sums) == 0);
    CHECK(differing(all.read(), combined) == 0);
}

}  // namespace

TEST_CASE("row-major register tiles through shared memory") {
    if (skipped()) return;
    check_through_shared<float, 32, 32, 1, register_layout::row_major>();
    check_through_shared<std::int32_t, 64, 8, 4, register_layout::row_major>();
    check_through_shared<bf16, 16, 8, 1, register_layout::row_major>();
    check_through_shared<bf16, 32, 24, 1, register_layout::row_major>();
    check_through_shared<fp16, 128, 128, 4, register_layout::row_major>();
    check_through_shared<bf16, 64, 96, 4, register_layout::row_major>();
    check_through_shared<e4m3, 16, 16, 1, register_layout::row_major>();
    check_through_shared<std::int8_t, 64, 48, 4, register_layout::row_major>();
    check_through_shared<e5m2, 32, 256, 1, register_layout::row_major>();
}

TEST_CASE("column-major register tiles through shared memory") {
    if (skipped()) return;
    check_through_shared<bf16, 8, 16, 1, register_layout::column_major>();
    check_through_shared<bf16, 40, 32, 1, register_layout::column_major>();
    check_through_shared<fp16, 64, 128, 4, register_layout::column_major>();
    check_through_shared<float, 24, 32, 1, register_layout::column_major>();
    check_through_shared<e4m3, 32, 64, 4, register_layout::column_major>();
}

TEST_CASE("register tiles as subtiles of shared tiles") {
    if (skipped()) return;
    check_through_shared<bf16, 32, 32, 1, register_layout::row_major, 64, 128>(24, 48);
    check_through_shared<bf16, 32, 32, 1, register_layout::column_major, 64, 128>(8, 72);
    check_through_shared<bf16, 16, 32, 1, register_layout::row_major, 40, 96>(3, 56);
    check_through_shared<e4m3, 16, 32, 1, register_layout::row_major, 64, 128>(16, 80);
    check_through_shared<float, 64, 16, 4, register_layout::row_major, 128, 64>(40, 36);
}

TEST_CASE("register tiles from and to unaligned global memory past the edge") {
    if (skipped()) return;
    check_through_global<float, 32, 24, 1, register_layout::row_major>();
    check_through_global<bf16, 64, 40, 4, register_layout::row_major>();
    check_through_global<e4m3, 16, 48, 1, register_layout::row_major>();
    check_through_global<bf16, 24, 32, 1, register_layout::column_major>();
    check_through_global<std::int8_t, 32, 64, 4, register_layout::column_major>();
}

TEST_CASE("register tiles convert between element types") {
    if (skipped()) return;
    check_conversion<bf16, float>();
    check_conversion<fp16, float>(1e5F);
    check_conversion<float, bf16>();
    check_conversion<float, fp16>();
    check_conversion<fp16, bf16>();
    check_conversion<float, std::int32_t>(1e6F);
    check_conversion<std::int32_t, float>(1e6F);
}

TEST_CASE("register tiles convert to and from 8 bits, across lanes") {
    if (skipped()) return;
    check_conversion<e4m3, float>(600.0F);
    check_conversion<float, e4m3>();
    check_conversion<e5m2, bf16, 64, 32, 4>(1e5F);
    check_conversion<bf16, e5m2, 64, 32, 4>();
    check_conversion<std::int8_t, float>(150.0F);
    check_conversion<std::int32_t, std::int8_t>(127.0F);
    check_conversion<e4m3, float, 32, 16, 1, register_layout::column_major>();
    check_conversion<float, e4m3, 32, 16, 1, register_layout::column_major>();
    check_conversion<e5m2, e4m3>();
}

TEST_CASE("rows and columns of register tiles reduce and combine with vectors") {
    if (skipped()) return;
    check_reductions<16, 8, 1>(16, 8);
    check_reductions<48, 40, 1>(37, 33);
    check_reductions<128, 64, 4>(128, 64);
    check_reductions<64, 72, 4>(50, 71);
}
