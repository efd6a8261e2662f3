// stack_columns: the columns of the first rows of a tile, stacked.
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/stack_columns.hpp>

#include "worlds.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int Kept, int Columns>
struct pack {
    static constexpr int warps = 1;
    static constexpr int packed_columns = Columns * Kept / 16;
    struct arguments {
        const float* tile;
        float* packed;
        float* rows;  // the value of each row of the stacked tile, in every column
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, Columns> tile;
            load_rows_from(self, tile, [&](int row) { return args.tile + row * Columns; });
            auto packed = stack_columns<Kept>(self, tile);
            const auto place = [&](float* to) { return [to](int row) { return to + row * packed_columns; }; };
            store_rows_to(self, place(args.packed), packed);
            row_values<float, 16, warp> values;
            hw::visit_rows(
                self, hw::use::write, source::current(), [](int row, float& value) { value = static_cast<float>(row); },
                values);
            combine_with_rows(self, packed, stack_columns<Kept>(self, values), [](float, float row) { return row; });
            store_rows_to(self, place(args.rows), packed);
        });
    }
};

template <int Kept, int Columns>
void check_pack() {
    using kernel = pack<Kept, Columns>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Kept);
        CAPTURE(Columns);
        buffer<float> tile(where, 16 * Columns);
        for (std::size_t i = 0; i < tile.values.size(); ++i) tile.values[i] = static_cast<float>(i);
        buffer<float> packed(where, 16 * kernel::packed_columns, -1.0f), rows(where, packed.values.size(), -1.0f);
        run<kernel>(where, {1}, {tile.upload(), packed.upload(), rows.upload()});
        packed.download();
        rows.download();
        for (int row = 0; row < 16; ++row) {
            for (int column = 0; column < kernel::packed_columns; ++column) {
                CAPTURE(row);
                CAPTURE(column);
                const int from = first_stacked_column(Kept, Columns, row) + column;
                CHECK(packed.values[row * kernel::packed_columns + column] == float(row % Kept * Columns + from));
                CHECK(rows.values[row * kernel::packed_columns + column] == float(row % Kept));
            }
        }
    }
}

}  // namespace

TEST_CASE("stacks 4 or 8 rows, and leaves 16 unchanged") {
    CHECK(first_stacked_column(4, 64, 0) == 0);
    CHECK(first_stacked_column(4, 64, 15) == 48);
    CHECK(first_stacked_column(8, 64, 7) == 0);
    CHECK(first_stacked_column(8, 64, 8) == 32);
    CHECK(first_stacked_column(16, 64, 15) == 0);
    CHECK(stacked_row(4, 15) == 3);
    CHECK(stacked_row(8, 8) == 0);
    CHECK(stacked_row(16, 15) == 15);
    check_pack<4, 32>();
    check_pack<4, 64>();
    check_pack<8, 16>();
    check_pack<8, 64>();
    check_pack<16, 8>();
    check_pack<16, 64>();
}
