// 8-bit operands in accumulator order: the order itself; transposition and reordering bit by bit, for all swizzles and
// with rows that do not exist; and products, exact, with B operands of both origins.
#include <ops/tools.hpp>

#include <cstdint>
#include <random>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// B^T from its transpose V by two warps, half of the keys each (Reorder: from itself, by one).
template <int HeadDim, int Keys, bool Reorder>
struct operand_kernel {
    static constexpr int warps = 2;
    static constexpr int half = Keys / 2;
    struct arguments {
        matrix_view<const e4m3> v;
        matrix_view<e4m3> out;
        int valid;
    };
    struct shared_memory {
        shared_tile<e4m3, half, HeadDim> v[2];
        accumulator_order_shared_tile<e4m3, HeadDim, Keys> b;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if constexpr (Reorder) {
                if (self.index() != 0) return;
                load(self, shared.b.tile, args.v.at(0, 0));
                reorder(self, shared.b, args.valid);
            } else {
                const int first = self.index() * half;
                load(self, shared.v[self.index()], args.v.at(first, 0));
                transpose(self, shared.b, first, shared.v[self.index()], args.valid - first);
            }
        });
        block.sync();
        store(block, args.out.at(0, 0), shared.b.tile);
    }
};

template <int HeadDim, int Keys, bool Reorder>
void check_operand(int valid) {
    for (const world where : worlds()) {
        buffer<e4m3> v(where, HeadDim * Keys), out(where, HeadDim * Keys, poison<e4m3>());
        std::mt19937 random(5);
        for (e4m3& one : v.values) one = e4m3::from_bits(static_cast<std::uint8_t>(random()));
        const int rows = Reorder ? HeadDim : Keys, columns = Reorder ? Keys : HeadDim;
        run<operand_kernel<HeadDim, Keys, Reorder>>(
            where, {1}, {matrix<const e4m3>(v.upload(), rows, columns), matrix(out.upload(), HeadDim, Keys), valid}, 4);
        out.download();
        tally compared(str_cat(name_of_shape<e4m3>(where, HeadDim, Keys, 2), ", ", valid, " keys"));
        for (int row = 0; row < HeadDim; ++row) {
            for (int position = 0; position < Keys; ++position) {
                const int key = accumulator_order_column(position);
                const e4m3 wanted =
                    key >= valid ? e4m3(0.0f) : v.values[Reorder ? row * Keys + key : key * HeadDim + row];
                compared.expect_same(row, position, out.values[row * Keys + position], wanted);
            }
        }
    }
}

// P V with P from an accumulator of small integers.
template <int HeadDim, int Keys>
struct product_kernel {
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<const float> p;
        matrix_view<const e4m3> v;
        matrix_view<float> out;
    };
    struct shared_memory {
        shared_tile<e4m3, Keys, HeadDim> v;
        accumulator_order_shared_tile<e4m3, HeadDim, Keys> b;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            load(self, shared.v, args.v.at(0, 0));
            transpose(self, shared.b, 0, shared.v, Keys);
            fence_async(self);
        });
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, Keys> p;
            accumulator_order_tile<e4m3, 64, Keys> a;
            warpgroup_tile<float, 64, HeadDim> out;
            load(self, p, args.p.at(0, 0));
            convert(self, a, p);
            mma_abt_async(self, out, a, shared.b, accumulation::replace);
            wait_mma(self, out);
            // The other half of the columns a second time, by themselves.
            constexpr int half = HeadDim / 2;
            warpgroup_tile<float, 64, half> part;
            row_values<float, 64, warpgroup> twos;
            fill(self, twos, 2.0f);
            mma_abt_columns_async<half>(self, part, a, shared.b, accumulation::replace);
            wait_mma(self, part);
            combine_columns_with_rows<half>(self, out, part, twos,
                                            [](float x, float more, float factor) { return x * factor + more; });
            store(self, args.out.at(0, 0), out);
        });
    }
};

template <int HeadDim, int Keys>
void check_product() {
    for (const world where : worlds()) {
        buffer<float> p(where, 64 * Keys), out(where, 64 * HeadDim, NAN);
        buffer<e4m3> v(where, Keys * HeadDim);
        std::mt19937 random(7);
        for (float& one : p.values) one = static_cast<float>(random() % 5);
        for (e4m3& one : v.values) one = e4m3(static_cast<float>(random() % 9) - 4);
        run<product_kernel<HeadDim, Keys>>(
            where, {1},
            {matrix<const float>(p.upload(), 64, Keys), matrix<const e4m3>(v.upload(), Keys, HeadDim),
             matrix(out.upload(), 64, HeadDim)},
            4);
        out.download();
        tally compared(name_of_shape<e4m3>(where, HeadDim, Keys, 4));
        for (int row = 0; row < 64; ++row) {
            for (int column = 0; column < HeadDim; ++column) {
                float wanted = 0;
                for (int key = 0; key < Keys; ++key) {
                    const float times = column < HeadDim / 2 ? 1 : 3;
                    wanted += times * p.values[row * Keys + key] * float(v.values[key * HeadDim + column]);
                }
                compared.expect(out.values[row * HeadDim + column] == wanted, "row", row, "column", column);
            }
        }
    }
}

}  // namespace

TEST_CASE("accumulator order is a permutation of each 16 columns") {
    for (int column = 0; column < 64; ++column) {
        CHECK(accumulator_order_column(accumulator_order_position(column)) == column);
        CHECK(accumulator_order_column(column) / 16 == column / 16);
    }
    CHECK(accumulator_order_column(2) == 8);
    CHECK(accumulator_order_column(21) == 19);
}

TEST_CASE("transposes to accumulator order; rows behind the last valid one are zero") {
    for (const int valid : {128, 1000, 100, 63, 1, 0, -5}) check_operand<64, 128, false>(valid);
    check_operand<128, 192, false>(150);
    check_operand<128, 224, false>(224);
    check_operand<128, 224, false>(117);
    check_operand<256, 32, false>(19);
    check_operand<32, 96, false>(96);
}

TEST_CASE("reorders to accumulator order in place") {
    for (const int valid : {128, 1000, 100, 63, 1, 0, -5}) check_operand<64, 128, true>(valid);
    check_operand<128, 192, true>(150);
    check_operand<128, 224, true>(117);
    check_operand<256, 32, true>(19);
}

TEST_CASE("multiplies an accumulator with an operand in accumulator order") {
    check_product<64, 128>();
    check_product<128, 224>();
    check_product<256, 32>();
}
