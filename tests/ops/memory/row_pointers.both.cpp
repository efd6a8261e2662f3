// Rows at arbitrary addresses of global memory, to registers and back; and the registers of a warp, saved and restored.
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>

#include "worlds.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Row r comes from row `from[r]` and goes to row `to[r]`; none if negative.
template <class T, int Rows, int Columns>
struct rearrange {
    static constexpr int warps = 1;
    struct arguments {
        const T* in;
        T* out;
        const int* from;
        const int* to;
        T* saved;
        float* saved_rows;
        float* rows;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_tile<T, Rows, Columns> loaded, held;
            load_rows_from(
                self, loaded,
                [&](int row) { return args.from[row] < 0 ? nullptr : args.in + args.from[row] * Columns; }, T(7.0f));
            save(self, args.saved, loaded);
            self.sync();
            restore(self, held, args.saved);
            store_rows_to(
                self, [&](int row) { return args.to[row] < 0 ? nullptr : args.out + args.to[row] * Columns; }, held);
            row_values<float, Rows, warp> numbers, again;
            fill(self, numbers, 1.0f);
            map_indexed(self, numbers, [](int row, float one) { return one + static_cast<float>(row); });
            save(self, args.saved_rows, numbers);
            self.sync();
            restore(self, again, args.saved_rows);
            store(self, args.rows, Rows, again);
        });
    }
};

template <class T, int Rows, int Columns>
void check_rearrange() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<T> in(where, Rows * Columns), out(where, Rows * Columns, T(-1.0f)), saved(where, Rows * Columns);
        buffer<int> from(where, Rows), to(where, Rows);
        buffer<float> saved_rows(where, 4 * Rows), rows(where, Rows, -1.0f);
        fill_random(in.values, 1);
        for (int i = 0; i < Rows; ++i) {
            from.values[i] = i % 5 == 2 ? -1 : (i * 7 + 3) % Rows;
            to.values[i] = i % 7 == 3 ? -1 : Rows - 1 - i;
        }
        run<rearrange<T, Rows, Columns>>(where, {1},
                                         {in.upload(), out.upload(), from.upload(), to.upload(), saved.upload(),
                                          saved_rows.upload(), rows.upload()});
        out.download();
        rows.download();
        std::vector<float> expected(Rows * Columns, -1.0f);
        for (int i = 0; i < Rows; ++i) {
            CHECK(rows.values[i] == 1.0f + float(i));
            for (int j = 0; to.values[i] >= 0 && j < Columns; ++j) {
                const int row = from.values[i];
                expected[to.values[i] * Columns + j] = row < 0 ? 7.0f : float(in.values[row * Columns + j]);
            }
        }
        for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(float(out.values[i]) == expected[i]);
    }
}

}  // namespace

TEST_CASE("rows from and to arbitrary addresses") {
    check_rearrange<float, 16, 16>();
    check_rearrange<bf16, 32, 48>();
}
