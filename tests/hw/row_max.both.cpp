// Row maximum by float and by integer comparison: zeros of both signs, infinities, and numbers of all magnitudes.
#include <imbrex/hw/registers.hpp>

#include <ops/tools.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int Rows, int Columns, class Scope>
struct fold_row_max_kernel {
    using tile = register_tile<float, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const float> in;
        const float* begin;
        float* out;
        float* negative;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            const int first = self.index() * Rows;
            tile one;
            load(self, one, args.in.template tile<tile>(self.index(), 0));
            row_values<float, Rows, Scope> rows, flags;
            load(self, rows, args.begin + first, Rows);
            const bool negative = hw::any_negative(self, rows);
            hw::fold_row_max(self, rows, one, negative);
            finish_rows(self, rows, functional::maximum{});
            store(self, args.out + first, Rows, rows);
            fill(self, flags, negative ? 1.0f : 0.0f);
            store(self, args.negative + first, Rows, flags);
        });
    }
};

// Initial values of the rows: all equal, or one different.
template <int Rows, int Columns, class Scope>
void test_row_max(float usual, float other, bool negative) {
    for (const world where : worlds()) {
        buffer<float> in(where, 2 * Rows * Columns), begin(where, 2 * Rows), out(where, 2 * Rows, poison<float>()),
            flags(where, 2 * Rows, poison<float>());
        std::mt19937 generator(21);
        std::uniform_real_distribution<float> exponent(-120, 120);
        for (int row = 0; row < 2 * Rows; ++row) {
            // No, some or all elements of a row are negative.
            const int kind = row % 5;
            for (int column = 0; column < Columns; ++column) {
                float& value = in.values[row * Columns + column];
                value = std::exp2(exponent(generator));
                if (kind == 1 || (kind == 2 && generator() % 2 == 0)) value = -value;
                if (kind == 3) value = minus_infinity;
                if (kind == 4) value = generator() % 3 == 0 ? 0.0f : -0.0f;
            }
            begin.values[row] = row == 5 ? other : usual;
        }
        run<fold_row_max_kernel<Rows, Columns, Scope>>(
            where, {1, 1, 1},
            {matrix(static_cast<const float*>(in.upload()), 2 * Rows, Columns), begin.upload(), out.upload(),
             flags.upload()},
            2);
        out.download();
        flags.download();
        tally compared(str_cat(name_of_shape<float>(where, Rows, Columns, Scope::warps), ", ", usual, ", ", other));
        // On the device each warp answers for its own 16 rows.
        const bool apart = where == world::device && Scope::warps > 1;
        for (int row = 0; row < 2 * Rows; ++row) {
            float wanted = begin.values[row];
            for (int i = 0; i < Columns; ++i) wanted = std::max(wanted, in.values[row * Columns + i]);
            compared.expect(out.values[row] == wanted, "row", row, "is", out.values[row], "not", wanted);
            const bool with_other = apart ? row / 16 % Scope::warps == 0 && row < Rows : row < Rows;
            const bool wanted_negative = std::signbit(usual) || (negative && with_other);
            compared.expect((flags.values[row] == 1) == wanted_negative, "row", row, "flag", flags.values[row]);
        }
    }
}

template <int Rows, int Columns, class Scope>
void test_all() {
    test_row_max<Rows, Columns, Scope>(0.0f, 3.0f, false);
    test_row_max<Rows, Columns, Scope>(1e-30f, INFINITY, false);
    test_row_max<Rows, Columns, Scope>(0.0f, -0.0f, true);
    test_row_max<Rows, Columns, Scope>(1.0f, minus_infinity, true);
    test_row_max<Rows, Columns, Scope>(-1e30f, 2.0f, false);
    test_row_max<Rows, Columns, Scope>(minus_infinity, minus_infinity, true);
}

TEST_CASE("row_max finds the maximum for nonnegative and for negative initial values") {
    test_all<16, 8, warp>();
    test_all<32, 24, warp>();
    test_all<64, 112, warpgroup>();
    test_all<128, 16, warpgroup>();
}

}  // namespace
