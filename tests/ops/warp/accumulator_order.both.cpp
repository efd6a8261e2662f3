// Products of one warp with 8-bit operands in accumulator order, exact: every element of V in its place, sums of small
// integers, and V from both origins, row-major and K-major.
#include <ops/tools.hpp>

#include <cstdint>
#include <random>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows = 16;

// P V by each of two warps for its own rows, first the upper half of the columns. With KMajor, V is given as its
// transpose, and each warp reorders half of its rows.
template <int HeadDim, int Keys, bool KMajor>
struct product_kernel {
    static constexpr int warps = 2;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_89;
    static constexpr int half = HeadDim / 2;
    struct arguments {
        matrix_view<const float> p;
        matrix_view<const e4m3> v;
        matrix_view<float> out;
        int valid;  // keys; of a row-major V all are
    };
    struct shared_memory {
        shared_tile<e4m3, Keys, HeadDim> v;
        accumulator_order_shared_tile<e4m3, HeadDim, Keys> b;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        if constexpr (KMajor) {
            load(block, shared.b.tile, args.v.at(0, 0));
        } else {
            load(block, shared.v, args.v.at(0, 0));
        }
        block.sync();
        block.each_warp([&](warp& self) {
            if constexpr (KMajor) reorder_rows<half>(self, shared.b, self.index() * half, args.valid);
        });
        block.sync();
        block.each_warp([&](warp& self) {
            warp_tile<float, rows, Keys> p;
            accumulator_order_tile<e4m3, rows, Keys, warp> a;
            load(self, p, args.p.at(self.index() * rows, 0));
            convert(self, a, p);
            multiply<half>(self, args, shared, a);
            multiply<0>(self, args, shared, a);
        });
    }

  private:
    template <int First>
    IMBREX_KERNEL static void multiply(warp& self, const arguments& args, const shared_memory& shared,
                                       const accumulator_order_tile<e4m3, rows, Keys, warp>& a) {
        std::conditional_t<KMajor, warp_tile<float, rows, half>, permuted_tile<float, rows, half>> out;
        fill(self, underlying_tile(out), 0.0f);
        if constexpr (KMajor) {
            mma_abt_columns<First>(self, out, a, shared.b);
        } else {
            mma_ab_columns<First>(self, out, a, shared.v);
        }
        store(self, args.out.at(self.index() * rows, First), unpermute(self, out));
    }
};

// P has `value(row, key)` and V the given elements, [key, column].
template <int HeadDim, int Keys, bool KMajor, class Value>
void check_product(const std::vector<e4m3>& elements, const Value& value, int valid = Keys) {
    for (const world where : worlds()) {
        buffer<float> p(where, 2 * rows * Keys), out(where, 2 * rows * HeadDim, NAN);
        buffer<e4m3> v(where, Keys * HeadDim);
        for (int i = 0; i < 2 * rows * Keys; ++i) p.values[i] = value(i / Keys, i % Keys);
        for (int key = 0; key < Keys; ++key) {
            for (int column = 0; column < HeadDim; ++column) {
                v.values[KMajor ? column * Keys + key : key * HeadDim + column] = elements[key * HeadDim + column];
            }
        }
        run<product_kernel<HeadDim, Keys, KMajor>>(
            where, {1},
            {matrix<const float>(p.upload(), 2 * rows, Keys),
             matrix<const e4m3>(v.upload(), KMajor ? HeadDim : Keys, KMajor ? Keys : HeadDim),
             matrix(out.upload(), 2 * rows, HeadDim), valid},
            2);
        out.download();
        tally compared(name_of_shape<e4m3>(where, HeadDim, Keys, 2));
        for (int row = 0; row < 2 * rows; ++row) {
            for (int column = 0; column < HeadDim; ++column) {
                float wanted = 0;
                for (int key = 0; key < valid; ++key) {
                    wanted += p.values[row * Keys + key] * float(elements[key * HeadDim + column]);
                }
                compared.expect(out.values[row * HeadDim + column] == wanted, "row", row, "column", column);
            }
        }
    }
}

template <int HeadDim, int Keys, bool KMajor>
void check_all() {
    std::vector<e4m3> elements(Keys * HeadDim);
    std::mt19937 random(3);
    // Every row of P selects one key: its row of V, all finite patterns.
    for (e4m3& one : elements) {
        const auto bits = static_cast<std::uint8_t>(random());
        one = e4m3::from_bits(bits % 128 == 127 ? 0 : bits);
    }
    for (int first = 0; first < Keys; first += 2 * rows) {
        check_product<HeadDim, Keys, KMajor>(elements,
                                             [&](int row, int key) { return key == first + row ? 1.0f : 0.0f; });
    }
    for (e4m3& one : elements) one = e4m3(static_cast<float>(random() % 9) - 4);
    std::vector<float> p(2 * rows * Keys);
    for (float& one : p) one = static_cast<float>(random() % 5);
    check_product<HeadDim, Keys, KMajor>(elements, [&](int row, int key) { return p[row * Keys + key]; });
}

}  // namespace

TEST_CASE("a warp multiplies an accumulator with a row-major operand in accumulator order") {
    check_all<64, 32, false>();
    check_all<128, 64, false>();
    check_all<256, 96, false>();
}

TEST_CASE("a warp multiplies an accumulator with a K-major operand, reordered in parts; missing keys are zero") {
    check_all<64, 32, true>();
    check_all<128, 64, true>();
    check_all<256, 96, true>();
    std::vector<e4m3> elements(64 * 64, e4m3(2.0f));
    for (int i = 37 * 64; i < 64 * 64; ++i) elements[i] = e4m3(NAN);
    check_product<64, 64, true>(
        elements, [](int row, int key) { return static_cast<float>((row + key) % 3); }, 37);
}
