// A GEMM with a user-defined epilogue: D = cap * tanh((A B) / cap), the softcap of logits. The functor gets a subtile
// of the product in fp32 and changes it before the store. It runs in both worlds, inside the kernel that the launcher
// selects, and composes with the library's own epilogue steps.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm.hpp>

#include <cmath>
#include <cstdio>

using namespace imbrex;

struct capped {
    float cap;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        const float most = cap;
        map(self, values, [=](float x) { return most - 2 * most / (1 + hw::exp2(x / most * 2.885390082f)); });
    }
};

int main() {
    const int m = 100, n = 136, k = 64;
    const float alpha = 2, cap = 3;
    const world where = device_available() ? world::device : world::host;

    world_array<bf16> a(where, m * k), b(where, n * k), d(where, m * n);
    for (int i = 0; i < m * k; ++i) a.values[i] = bf16(std::sin(0.31f * i));
    for (int i = 0; i < n * k; ++i) b.values[i] = bf16(std::cos(0.17f * i));

    const auto epilogue = epilogue::compose(epilogue::scale{alpha}, capped{cap});
    using product = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major},
                         decltype(epilogue::compose(epilogue::scale{}, capped{}))>;
    const gemm_problem<bf16, bf16> problem{m, n, k, {a.upload()}, {b.upload()}, {d.upload()}};
    product::launch(where, problem, epilogue);
    d.download();

    double worst = 0;
    for (int row = 0; row < m; ++row) {
        for (int column = 0; column < n; ++column) {
            double sum = 0;
            for (int i = 0; i < k; ++i) sum += double(float(a.values[row * k + i])) * float(b.values[column * k + i]);
            const double error = std::abs(cap * std::tanh(alpha * sum / cap) - float(d.values[row * n + column]));
            worst = error <= worst ? worst : error;
        }
    }
    std::printf("capped product of %d x %d x %d in the %s world by the kernel %s: largest error %.2g\n", m, n, k,
                name_of(where).c_str(), name_of(product::choice(where, problem)), worst);
    return worst < 0.02 ? 0 : 1;
}
