// A kernel with more shared memory than the default limit, launched from several translation units.
#pragma once

#include <imbrex/imbrex.hpp>

#include <ops/tools.hpp>

#include <vector>

namespace imbrex_test {

// Each warp passes its tile through shared memory and doubles it.
struct large_kernel {
    static constexpr int warps = 4;
    static constexpr int rows = 64, columns = 64;
    using tile = imbrex::shared_tile<float, rows, columns>;
    struct arguments {
        imbrex::matrix_view<const float> in;
        imbrex::matrix_view<float> out;
    };
    struct shared_memory {
        tile of_warp[warps];  // 64 KB
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](imbrex::warp& self) {
            tile& own = shared.of_warp[self.index()];
            imbrex::warp_tile<float, rows, columns> values;
            load(self, values, args.in.at(self.index() * rows, 0));
            map(self, values, [](float x) { return 2 * x; });
            store(self, own, values);
            self.sync();
            load(self, values, own);
            store(self, args.out.at(self.index() * rows, 0), values);
        });
    }
};

// `Unit` differs between translation units, so each has its own function.
template <class Unit>
void test_large_kernel() {
    constexpr int rows = large_kernel::warps * large_kernel::rows, columns = large_kernel::columns;
    for (const imbrex::world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> in(where, rows * columns), out(where, rows * columns, poison<float>());
        std::vector<float> doubled(in.values.size());
        for (std::size_t i = 0; i < in.values.size(); ++i) {
            in.values[i] = static_cast<float>(i % 1000);
            doubled[i] = 2 * in.values[i];
        }
        run<large_kernel>(where, {1, 1, 1},
                          {imbrex::matrix(static_cast<const float*>(in.upload()), rows, columns),
                           imbrex::matrix(out.upload(), rows, columns)},
                          2);
        out.download();
        CHECK(out.values == doubled);
    }
}

}  // namespace imbrex_test
