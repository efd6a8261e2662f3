// Every epilogue, and compositions of them, compared with float64: on tiles that extend past the edge of D, in both
// scopes from which kernels call them.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>

#include "worlds.hpp"

#include <cmath>
#include <functional>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int batches = 2, rows = 75, columns = 43;

// D = epilogue(X), or epilogue(X, U), in tiles of 64 x 32.
template <class Out, class Epilogue>
struct apply_epilogue {
    static constexpr int warps = 4;
    struct arguments {
        gemm_view<const float> values, up;
        gemm_view<Out> out;
        Epilogue epilogue;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, hw::no_shared_memory&) {
        block.each_warpgroup([&](warpgroup& self) {
            const gemm_coord at{block.index().z, block.index().y * 64, block.index().x * 32};
            warpgroup_tile<float, 64, 32> values;
            load(self, values, args.values.at(at.batch, at.row, at.column));
            if constexpr (epilogue::is_glu<Epilogue>) {
                warpgroup_tile<float, 64, 32> up;
                load(self, up, args.up.at(at.batch, at.row, at.column));
                args.epilogue(self, values, up, at);
            } else {
                args.epilogue(self, values, at);
            }
            store(self, args.out.at(at.batch, at.row, at.column), convert_to<Out>(self, values));
        });
    }
};

struct inputs {
    explicit inputs(world where)
        : values(where, batches * rows * columns),
          up(where, batches * rows * columns),
          residual(where, batches * rows * columns),
          bias(where, batches * columns),
          row_scales(where, rows),
          column_scales(where, columns),
          scales(where, 2) {
        fill_random(values.values, 1, -4, 4);
        fill_random(up.values, 2);
        fill_random(residual.values, 3);
        fill_random(bias.values, 4);
        fill_random(row_scales.values, 5);
        fill_random(column_scales.values, 6);
        scales.values = {0.75f, 0.5f};
        for (auto* one : {&values, &up, &row_scales, &column_scales, &scales}) one->upload();
        residual.upload();
        bias.upload();
    }
    buffer<float> values, up;
    buffer<bf16> residual, bias;
    buffer<float> row_scales, column_scales, scales;
};

template <class T>
gemm_view<T> batch_view(T* pointer) {
    return {pointer, {batches, rows, columns}, {rows * columns, columns}};
}

using formula = std::function<double(const inputs&, double x, double up, int batch, int row, int column)>;

template <class Out = float, class Make>
void check_epilogue(Make make, const formula& expected, double tolerance = 1e-6) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        inputs given(where);
        buffer<Out> out(where, batches * rows * columns);
        const auto epilogue = make(given);
        using kernel = apply_epilogue<Out, std::remove_const_t<decltype(epilogue)>>;
        run<kernel>(where, {2, 2, batches},
                    {batch_view<const float>(given.values.upload()), batch_view<const float>(given.up.upload()),
                     batch_view(out.upload()), epilogue});
        out.download();
        double worst = 0;
        for (int i = 0; i < batches * rows * columns; ++i) {
            const int batch = i / (rows * columns), row = i / columns % rows, column = i % columns;
            const double right = expected(given, given.values.values[i], given.up.values[i], batch, row, column);
            const double error = std::abs(static_cast<double>(convert<float>(out.values[i])) - right);
            worst = error <= worst ? worst : error;
        }
        CHECK(worst <= tolerance);
    }
}

double silu_of(double x) {
    return x / (1 + std::exp(-x));
}

}  // namespace

TEST_CASE("identity") {
    check_epilogue([](inputs&) { return epilogue::identity{}; },
                   [](const inputs&, double x, double, int, int, int) { return x; }, 0);
}

TEST_CASE("scale, scale_by_pointer, scale_rows and scale_columns") {
    check_epilogue([](inputs&) { return epilogue::scale{-2.5f}; },
                   [](const inputs&, double x, double, int, int, int) { return -2.5 * x; });
    check_epilogue([](inputs& given) { return epilogue::scale_by_pointer{given.scales.upload()}; },
                   [](const inputs&, double x, double, int, int, int) { return 0.75 * x; });
    check_epilogue(
        [](inputs& given) {
            return epilogue::scale_by_pointer{given.scales.upload(), given.scales.upload() + 1};
        },
        [](const inputs&, double x, double, int, int, int) { return 0.375 * x; });
    check_epilogue(
        [](inputs& given) {
            return epilogue::scale_rows{{given.row_scales.upload(), rows}};
        },
        [](const inputs& given, double x, double, int, int row, int) { return x * given.row_scales.values[row]; });
    check_epilogue(
        [](inputs& given) {
            return epilogue::scale_columns{{given.column_scales.upload(), columns}};
        },
        [](const inputs& given, double x, double, int, int, int column) {
            return x * given.column_scales.values[column];
        });
}

TEST_CASE("bias, shared by the batch or one per batch") {
    check_epilogue(
        [](inputs& given) {
            return epilogue::bias<bf16>{{given.bias.upload(), columns}};
        },
        [](const inputs& given, double x, double, int, int, int column) {
            return x + static_cast<float>(given.bias.values[column]);
        });
    check_epilogue(
        [](inputs& given) {
            return epilogue::bias<bf16>{{given.bias.upload(), columns, columns}};
        },
        [](const inputs& given, double x, double, int batch, int, int column) {
            return x + static_cast<float>(given.bias.values[batch * columns + column]);
        });
}

TEST_CASE("residual, and beta C") {
    check_epilogue(
        [](inputs& given) { return epilogue::residual<bf16>{batch_view<const bf16>(given.residual.upload())}; },
        [](const inputs& given, double x, double, int batch, int row, int column) {
            return x + static_cast<float>(given.residual.values[(batch * rows + row) * columns + column]);
        });
    check_epilogue(
        [](inputs& given) {
            return epilogue::compose(epilogue::scale{2},
                                     epilogue::residual<bf16>{batch_view<const bf16>(given.residual.upload()), -0.5f});
        },
        [](const inputs& given, double x, double, int batch, int row, int column) {
            return 2 * x - 0.5 * static_cast<float>(given.residual.values[(batch * rows + row) * columns + column]);
        });
}

TEST_CASE("activations") {
    check_epilogue([](inputs&) { return epilogue::activation<activation::relu>{}; },
                   [](const inputs&, double x, double, int, int, int) { return x > 0 ? x : 0; });
    check_epilogue([](inputs&) { return epilogue::activation<activation::silu>{}; },
                   [](const inputs&, double x, double, int, int, int) { return silu_of(x); }, 2e-6);
    check_epilogue(
        [](inputs&) { return epilogue::activation<activation::gelu>{}; },
        [](const inputs&, double x, double, int, int, int) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); },
        2e-6);
    check_epilogue([](inputs&) { return epilogue::activation<activation::gelu_tanh>{}; },
                   [](const inputs&, double x, double, int, int, int) {
                       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
                   },
                   4e-6);
}

TEST_CASE("glu, and steps after it") {
    check_epilogue([](inputs&) { return epilogue::swiglu{}; },
                   [](const inputs&, double x, double up, int, int, int) { return silu_of(x) * up; }, 2e-6);
    check_epilogue(
        [](inputs& given) {
            return epilogue::compose(epilogue::swiglu{}, epilogue::scale{3},
                                     epilogue::bias<bf16>{{given.bias.upload(), columns}});
        },
        [](const inputs& given, double x, double up, int, int, int column) {
            return 3 * silu_of(x) * up + static_cast<float>(given.bias.values[column]);
        },
        4e-6);
}

TEST_CASE("quantise to e4m3 and int8: divides by the scale, rounds and saturates") {
    check_epilogue<e4m3>(
        [](inputs& given) {
            return epilogue::compose(epilogue::scale{300}, epilogue::quantise{given.scales.upload() + 1});
        },
        [](const inputs&, double x, double, int, int, int) {
            return static_cast<double>(static_cast<float>(e4m3(static_cast<float>(x) * 300.0f * 2.0f)));
        },
        0);
    check_epilogue<std::int8_t>(
        [](inputs& given) {
            return epilogue::compose(epilogue::scale{50}, epilogue::quantise{given.scales.upload() + 1});
        },
        [](const inputs&, double x, double, int, int, int) {
            return static_cast<double>(convert<std::int8_t>(static_cast<float>(x) * 50.0f * 2.0f));
        },
        0);
}

TEST_CASE("compose applies steps from left to right") {
    check_epilogue(
        [](inputs& given) {
            return epilogue::compose(epilogue::scale{0.5f}, epilogue::bias<bf16>{{given.bias.upload(), columns}},
                                     epilogue::activation<activation::silu>{},
                                     epilogue::residual<bf16>{batch_view<const bf16>(given.residual.upload())});
        },
        [](const inputs& given, double x, double, int batch, int row, int column) {
            return silu_of(0.5 * x + static_cast<float>(given.bias.values[column])) +
                   static_cast<float>(given.residual.values[(batch * rows + row) * columns + column]);
        },
        4e-6);
}
