// Transposed tiles, and their row and column values.
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/transpose.hpp>

#include "worlds.hpp"

#include <type_traits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T, int Rows, int Columns>
struct turn {
    static constexpr int warps = 1;
    struct arguments {
        const float* tile;
        float* turned;   // 16 x Rows
        float* of_rows;  // 16 x Rows: 10 + the source column of each row, transposed back and forth
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_tile<float, Rows, Columns> tile;
            load_rows_from(self, tile, [&](int row) { return args.tile + row * Columns; });
            const auto place = [&](float* to) { return [to](int row) { return to + row * Rows; }; };
            warp_tile<float, 16, Rows> result = convert_to<float>(self, transpose(self, convert_to<T>(self, tile)));
            store_rows_to(self, place(args.turned), result);
            column_values<float, Columns> values;
            hw::visit_columns(
                self, hw::use::write, source::current(),
                [](int column, float& value) { value = 10.0f + static_cast<float>(column); }, values);
            const column_values<float, Columns> back = transpose_rows<Columns>(self, transpose(self, values));
            combine_with_rows(self, result, transpose(self, back), [](float, float row) { return row; });
            store_rows_to(self, place(args.of_rows), result);
        });
    }
};

template <class T, int Rows, int Columns>
void check_turn() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Rows);
        CAPTURE(Columns);
        buffer<float> tile(where, Rows * Columns);
        // Floats with digits in both halves of their bits.
        const float more = std::is_same_v<T, float> ? 1.0f / 8192 : 0.0f;
        for (std::size_t i = 0; i < tile.values.size(); ++i) tile.values[i] = static_cast<float>(i) + more;
        buffer<float> found(where, 16 * Rows, -1.0f), rows(where, found.values.size(), -1.0f);
        run<turn<T, Rows, Columns>>(where, {1}, {tile.upload(), found.upload(), rows.upload()});
        found.download();
        rows.download();
        for (int row = 0; row < 16; ++row) {
            for (int column = 0; column < Rows; ++column) {
                CAPTURE(row);
                CAPTURE(column);
                const bool there = row < Columns;
                CHECK(found.values[row * Rows + column] == (there ? tile.values[column * Columns + row] : 0.0f));
                CHECK(rows.values[row * Rows + column] == (there ? 10.0f + static_cast<float>(row) : 0.0f));
            }
        }
    }
}

}  // namespace

TEST_CASE("transposes tiles of 8 and 16 columns and their column values") {
    check_turn<fp16, 16, 8>();
    check_turn<fp16, 64, 8>();
    check_turn<fp16, 32, 16>();
    check_turn<float, 16, 8>();
    check_turn<float, 128, 8>();
    check_turn<float, 96, 16>();
}
