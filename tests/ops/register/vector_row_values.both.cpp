// Row values of vectorised rows: from and to arbitrary addresses, in place, at every width, against plain loops.
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_values.hpp>

#include "worlds.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// The values of rows `stride` apart become 2 value + row, in place; every third row has no value, which counts as 7.
// The columns of each row are set to its value.
template <int Rows, int Columns>
struct double_values {
    static constexpr int warps = 2;  // each has its own rows
    struct arguments {
        float* values;
        float* out;
        int stride;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](const warp& self) {
            const int first = self.index() * Rows;
            const auto place = [&](int row) -> float* {
                return (first + row) % 3 == 2 ? nullptr : args.values + (first + row) * args.stride;
            };
            vector_row_tile<float, Rows, Columns> tile;
            vector_row_values<vector_row_tile<float, Rows, Columns>> values, rows;
            load_values_from(self, values, place, 7.0f);
            fill(self, rows, 0.0f);
            hw::visit_vector_row_values(
                self, hw::use::update, source::current(),
                [&](int row, float& value, float& number) {
                    number = static_cast<float>(first + row);
                    value = 2 * value + number;
                },
                values, rows);
            transform(
                self, tile, [](float value, float row) { return value + 100 * row; }, values, rows);
            store_rows_to<row_alignment::aligned>(
                self, [&](int row) { return args.out + (first + row) * Columns; }, tile, Columns);
            store_values_to(self, place, values);
        });
    }
};

template <int Rows, int Columns>
void check_values(int stride) {
    using kernel = double_values<Rows, Columns>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Columns);
        const int schedules = where == world::host_checked ? 1 : 0;  // each run would double again
        buffer<float> values(where, 2 * Rows * stride), out(where, 2 * Rows * Columns);
        fill_random(values.values, 1);
        const std::vector<float> before = values.values;
        run<kernel>(where, {1}, {values.upload(), out.upload(), stride}, schedules);
        values.download();
        out.download();
        bool right = true;
        for (int row = 0; row < 2 * Rows; ++row) {
            const bool there = row % 3 != 2;
            const float wanted = 2 * (there ? before[row * stride] : 7) + static_cast<float>(row);
            for (int i = 0; i < stride; ++i) {
                const int place = row * stride + i;
                right = right && values.values[place] == (there && i == 0 ? wanted : before[place]);
            }
            for (int i = 0; i < Columns; ++i) {
                right = right && out.values[row * Columns + i] == wanted + 100 * static_cast<float>(row);
            }
        }
        CHECK(right);
    }
}

}  // namespace

TEST_CASE("row values load from arbitrary addresses and store in place") {
    check_values<32, 8>(1);
    check_values<64, 8>(3);
    check_values<4, 64>(5);
    check_values<2, 128>(1);
    check_values<6, 128>(2);
    check_values<1, 256>(4);
    check_values<3, 512>(1);
}
