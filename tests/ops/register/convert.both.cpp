// Conversions of register tiles. If one of the two types has 8 bits, elements change lanes on the device; so each pair
// of widths is tested in both directions and both layouts.
#include <ops/tools.hpp>

#include <cstdint>
#include <limits>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class From, class To, int Rows, int Columns, class Scope, register_layout Layout>
struct conversion {
    using from_tile = register_tile<From, Rows, Columns, Scope, Layout>;
    using to_tile = register_tile<To, Rows, Columns, Scope, Layout>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const From> in;
        matrix_view<To> by_reference, by_value;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            from_tile before;
            to_tile after;
            load(self, before, args.in.template tile<from_tile>(self.index(), 0));
            convert(self, after, before);
            store(self, args.by_reference.template tile<to_tile>(self.index(), 0), after);
            store(self, args.by_value.template tile<to_tile>(self.index(), 0), convert_to<To>(self, before));
        });
    }
};

// Ordinary numbers and special cases of conversions: ties, overflow and underflow of the narrower types, infinities and
// NaN.
template <class T>
void fill_with_edges(std::vector<T>& values, std::uint32_t seed) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float edges[] = {0.0f,      -0.0f,    0.5f,     1.5f,     2.5f,      -2.5f,        126.5f,
                           127.5f,    -128.5f,  448.0f,   464.0f,   -465.0f,   57344.0f,     61440.0f,
                           -65504.0f, 65520.0f, 1e-3f,    -2e-3f,   1e-8f,     -1.1e-10f,    1.000976f,
                           1.00390f,  3.0e38f,  -3.0e38f, infinity, -infinity, std::nanf("")};
    fill_random(values, seed, -200.0f, 200.0f);
    for (std::size_t i = 0; i < values.size(); i += 5) values[i] = convert<T>(edges[i / 5 % std::size(edges)]);
}

template <class From, class To, int Rows, int Columns, class Scope, register_layout Layout = register_layout::row_major>
void test_conversion() {
    constexpr std::size_t count = 2 * Rows * Columns;
    for (const world where : worlds()) {
        buffer<From> in(where, count);
        buffer<To> by_reference(where, count, poison<To>()), by_value(where, count, poison<To>());
        fill_with_edges(in.values, 7);
        run<conversion<From, To, Rows, Columns, Scope, Layout>>(
            where, {1, 1, 1},
            {matrix(static_cast<const From*>(in.upload()), 2 * Rows, Columns),
             matrix(by_reference.upload(), 2 * Rows, Columns), matrix(by_value.upload(), 2 * Rows, Columns)},
            2);
        by_reference.download();
        by_value.download();
        tally compared(str_cat(name_of_shape<To>(where, Rows, Columns, Scope::warps), " from ", imbrex::name_of<From>(),
                               Layout == register_layout::column_major ? ", column-major" : ""));
        for (int row = 0; row < 2 * Rows; ++row) {
            for (int column = 0; column < Columns; ++column) {
                const int i = row * Columns + column;
                const To wanted = convert<To>(in.values[i]);
                compared.expect_same(row, column, by_reference.values[i], wanted);
                compared.expect_same(row, column, by_value.values[i], wanted);
            }
        }
    }
}

TEST_CASE("conversions within lanes") {
    test_conversion<float, bf16, 64, 8, warpgroup>();
    test_conversion<float, fp16, 16, 24, warp>();
    test_conversion<bf16, float, 16, 8, warp>();
    test_conversion<fp16, bf16, 32, 16, warp, register_layout::column_major>();
    test_conversion<float, std::int32_t, 16, 8, warp>();
    test_conversion<std::int32_t, bf16, 16, 8, warp>();
    test_conversion<e4m3, e5m2, 16, 16, warp>();
}

TEST_CASE("conversions to 8 bits") {
    test_conversion<float, e4m3, 32, 48, warp>();
    test_conversion<float, e5m2, 64, 16, warpgroup>();
    test_conversion<bf16, e4m3, 32, 16, warp, register_layout::column_major>();
    test_conversion<float, std::int8_t, 128, 32, warpgroup>();
    test_conversion<std::int32_t, std::int8_t, 16, 16, warp>();
}

TEST_CASE("conversions from 8 bits") {
    test_conversion<e4m3, float, 32, 48, warp>();
    test_conversion<e4m3, bf16, 64, 16, warpgroup>();
    test_conversion<e5m2, fp16, 32, 16, warp, register_layout::column_major>();
    test_conversion<std::int8_t, float, 128, 32, warpgroup>();
    test_conversion<std::int8_t, std::int32_t, 16, 16, warp>();
}

}  // namespace
