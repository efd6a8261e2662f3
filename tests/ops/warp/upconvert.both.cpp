// Upconversion of 8-bit shared tiles: each of the 256 bit patterns in tiles of every swizzle, in whole tiles and in
// subtiles of any number of rows; rows that do not count; factors.
#include <ops/tools.hpp>

#include <imbrex/ops/warp/upconvert.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Upconverts Part rows at a time. valid_rows and factor are those of the tile.
template <class To, class From, int Rows, int Columns, int Part>
struct upconverts_parts {
    using tile = shared_tile<To, Rows, Columns>;
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const From> in;
        matrix_view<To> out;
        int valid_rows;
        float factor;  // 0: none
    };
    struct shared_memory {
        shared_tile<From, Rows, Columns> in;
        tile out;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            load(self, smem.in, args.in.at(0, 0));
            self.sync();
            for (int row = 0; row < Rows; row += Part) {
                const auto from = smem.in.template subtile<Part>(row);
                const auto to = smem.out.template subtile<Part>(row);
                if (args.factor == 0) {
                    upconvert(self, to, from, args.valid_rows - row);
                } else {
                    upconvert(self, to, from, args.valid_rows - row, args.factor);
                }
            }
            self.sync();
            store(self, args.out.at(0, 0), smem.out);
        });
    }
};

template <class To, class From, int Rows, int Columns, int Part>
void test_upconversion() {
    constexpr std::size_t count = Rows * Columns;
    for (const world where : worlds()) {
        for (const auto& [valid_rows, factor] :
             {std::pair{Rows, 0.0f}, std::pair{Rows - 5, 0.0f}, std::pair{3, 0.0f}, std::pair{Rows, 0.3f},
              std::pair{Rows - 13, 1.0f / 3}, std::pair{0, 2.0f}}) {
            buffer<From> in(where, count);
            buffer<To> out(where, count, poison<To>());
            for (std::size_t i = 0; i < count; ++i) {
                const auto pattern = static_cast<std::uint8_t>(37 * i + i / 256);
                std::memcpy(&in.values[i], &pattern, 1);
            }
            run<upconverts_parts<To, From, Rows, Columns, Part>>(
                where, {1, 1, 1},
                {matrix(static_cast<const From*>(in.upload()), Rows, Columns), matrix(out.upload(), Rows, Columns),
                 valid_rows, factor},
                2);
            out.download();
            tally compared(name_of_shape<To>(where, Rows, Columns, Part) + ", upconversion");
            for (int row = 0; row < Rows; ++row) {
                for (int column = 0; column < Columns; ++column) {
                    const int i = row * Columns + column;
                    const float stored = convert<float>(in.values[i]);
                    const float found = convert<float>(out.values[i]);
                    if (row >= valid_rows) {
                        compared.expect(found == 0, row, column, found);
                    } else if (std::isnan(stored)) {
                        const float most = factor == 0 ? 480.0f : convert<float>(convert<To>(480 * factor));
                        compared.expect(std::isnan(found) || std::abs(found) == most, row, column, found);
                    } else {
                        const float right = convert<float>(convert<To>(factor == 0 ? stored : stored * factor));
                        compared.expect(found == right, row, column, found, right);
                    }
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("upconverts e4m3 and int8 between shared tiles") {
    test_upconversion<bf16, e4m3, 32, 128, 32>();
    test_upconversion<fp16, e4m3, 32, 128, 16>();
    test_upconversion<bf16, std::int8_t, 32, 64, 32>();
    test_upconversion<fp16, std::int8_t, 64, 64, 16>();
    test_upconversion<bf16, e4m3, 32, 96, 32>();
    test_upconversion<fp16, e4m3, 32, 192, 16>();
    test_upconversion<fp16, std::int8_t, 32, 256, 32>();
    test_upconversion<bf16, std::int8_t, 32, 48, 16>();
    test_upconversion<bf16, e4m3, 32, 16, 32>();
    test_upconversion<fp16, e4m3, 32, 32, 8>();
    test_upconversion<bf16, e4m3, 32, 256, 4>();
}
