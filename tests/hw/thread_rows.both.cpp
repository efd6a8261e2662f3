// visit_thread_rows: which rows belong to which half, which columns are visited, and the reduction over a row.
#include <imbrex/hw/registers.hpp>

#include <ops/tools.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Each half writes its number (from 1) and the index of an element in its pair, in columns First to First + Count - 1,
// and reduces the sums of all columns.
template <int Rows, int Columns, int First, int Count, class Scope>
struct thread_rows_kernel {
    using tile = register_tile<float, Rows, Columns, Scope>;
    static constexpr int warps = 2 * Scope::warps;
    struct arguments {
        matrix_view<const float> in;
        matrix_view<float> out;
        float* sums;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            tile one;
            load(self, one, args.in.template tile<tile>(self.index(), 0));
            row_values<float, Rows, Scope> sums;
            fill(self, sums, 0.0f);
            const auto sum_up = [](const auto& row, float& sum) {
                row.template for_each_pair<0, Columns>([&](float a, float b) { sum += a + b; });
                sum = row.quad_allreduce(sum, functional::add{});
            };
            hw::visit_thread_rows<0>(self, source::current(), sum_up, one, sums);
            hw::visit_thread_rows<1>(self, source::current(), sum_up, one, sums);
            const auto number = [](float turn) {
                return [turn](const auto& row) {
                    row.template for_each_pair<First, Count>([&](float& a, float& b) {
                        a = turn;
                        b = turn + 0.5f;
                    });
                };
            };
            hw::visit_thread_rows<0>(self, source::current(), number(1.0f), one);
            hw::visit_thread_rows<1>(self, source::current(), number(2.0f), one);
            store(self, args.out.template tile<tile>(self.index(), 0), one);
            store(self, args.sums + self.index() * Rows, Rows, sums);
        });
    }
};

template <int Rows, int Columns, int First, int Count, class Scope>
void test_halves() {
    for (const world where : worlds()) {
        buffer<float> in(where, 2 * Rows * Columns), out(where, 2 * Rows * Columns, poison<float>()),
            sums(where, 2 * Rows, poison<float>());
        for (std::size_t i = 0; i < in.values.size(); ++i) in.values[i] = static_cast<float>(i % 1009) - 500;
        run<thread_rows_kernel<Rows, Columns, First, Count, Scope>>(
            where, {1, 1, 1},
            {matrix(static_cast<const float*>(in.upload()), 2 * Rows, Columns), matrix(out.upload(), 2 * Rows, Columns),
             sums.upload()},
            2);
        out.download();
        sums.download();
        tally compared(name_of_shape<float>(where, Rows, Columns, Scope::warps));
        for (int row = 0; row < 2 * Rows; ++row) {
            float sum = 0;  // of integers, so exact
            for (int column = 0; column < Columns; ++column) {
                const float before = in.values[row * Columns + column];
                sum += before;
                const bool visited = column >= First && column < First + Count;
                const float wanted =
                    visited ? static_cast<float>(row % 16 / 8 + 1) + 0.5f * static_cast<float>(column % 2) : before;
                const float value = out.values[row * Columns + column];
                compared.expect(value == wanted, "row", row, "column", column, "is", value, "not", wanted);
            }
            compared.expect(sums.values[row] == sum, "row", row, "has the sum", sums.values[row], "not", sum);
        }
    }
}

TEST_CASE("visits the rows of each half, in all columns and in a range") {
    test_halves<16, 8, 0, 8, warp>();
    test_halves<32, 24, 8, 16, warp>();
    test_halves<64, 112, 56, 56, warpgroup>();
    test_halves<128, 16, 0, 8, warpgroup>();
}

}  // namespace
