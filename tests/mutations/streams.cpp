// Streams of kernels that overlap by PDL are correct, and each of their PDL synchronisations is necessary: the checker
// detects a pdl_wait that is left out, and a launch of dependents that comes too early where the next kernel relies on it.
// Those of a cascade: tests/kernels/paged_cascade.both.cpp.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/embedding.hpp>
#include <imbrex/kernels/layer_norm.hpp>
#include <imbrex/kernels/linear.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/rms_norm_gemm.hpp>
#include <imbrex/kernels/swiglu.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "synchronisation.hpp"
#include "worlds.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

TEST_CASE("the MLP of a decode step: embedding, RMSNorm, fused RMSNorm + GEMM, SwiGLU, linear, RMSNorm with residual") {
    const int rows = 3, columns = 64, hidden = 128, entries = 10;
    std::vector<bf16> table(entries * columns), x(rows * columns), normed(x.size()), gate_up(rows * 2 * hidden);
    std::vector<bf16> activated(rows * hidden), down(x.size()), residual(x.size()), out(x.size());
    std::vector<bf16> up_weights(2 * hidden * columns), down_weights(columns * hidden);
    std::vector<float> norm_weights(columns, 1.0f);
    const std::vector<int> ids{7, 2, 5};
    for (auto* one : {&table, &up_weights, &down_weights}) fill_random(*one, 1);
    const auto layer = [&] {
        const world where = world::host_checked;
        embedding<bf16>::launch(where, {.table = as_rows<const bf16>(table.data(), entries, columns),
                                        .ids = ids.data(),
                                        .out = as_rows(residual.data(), rows, columns)});
        using norm = rms_norm<bf16, float>;
        norm::launch(where, {.x = as_rows<const bf16>(residual.data(), rows, columns),
                             .weight = norm_weights.data(),
                             .out = as_rows(normed.data(), rows, columns)});
        using product = rms_norm_gemm<bf16, bf16>;
        product::launch(where, {rows, 2 * hidden, columns, {normed.data()}, {up_weights.data()}, {gate_up.data()}}, {},
                        {1e-5f});
        swiglu_activation<bf16>::launch(where, {.gate = gate_of<const bf16>(gate_up.data(), rows, hidden),
                                                .up = up_of<const bf16>(gate_up.data(), rows, hidden),
                                                .out = as_rows(activated.data(), rows, hidden)});
        linear<bf16, unquantised_weight_rows<bf16>, bf16>::launch(
            where, {.x = as_rows<const bf16>(activated.data(), rows, hidden),
                    .weights = make_weight_rows<bf16>(down_weights.data(), columns, hidden),
                    .out = as_rows(down.data(), rows, columns)});
        norm::launch(where, {.x = as_rows<const bf16>(down.data(), rows, columns),
                             .weight = norm_weights.data(),
                             .out = as_rows(out.data(), rows, columns),
                             .residual = as_rows(residual.data(), rows, columns)});
    };
    check_stream("MLP", layer);
}

TEST_CASE("a pre-norm block: LayerNorm, linear, LayerNorm with residual") {
    const int rows = 3, columns = 600;
    std::vector<bf16> x(rows * columns), normed(x.size()), projected(x.size()), out(x.size()),
        weights(columns * columns);
    std::vector<bf16> factors(columns, convert<bf16>(1.0f)), shifts(columns);
    for (auto* one : {&x, &weights, &shifts}) fill_random(*one, 1);
    const auto layer = [&] {
        const world where = world::host_checked;
        using norm = layer_norm<bf16>;
        norm::launch(where, {.x = as_rows<const bf16>(x.data(), rows, columns),
                             .weight = factors.data(),
                             .bias = shifts.data(),
                             .out = as_rows(normed.data(), rows, columns)});
        linear<bf16, unquantised_weight_rows<bf16>, bf16>::launch(
            where, {.x = as_rows<const bf16>(normed.data(), rows, columns),
                    .weights = make_weight_rows<bf16>(weights.data(), columns, columns),
                    .out = as_rows(projected.data(), rows, columns)});
        norm::launch(where, {.x = as_rows<const bf16>(projected.data(), rows, columns),
                             .weight = factors.data(),
                             .out = as_rows(out.data(), rows, columns),
                             .residual = as_rows(x.data(), rows, columns)});
    };
    check_stream("pre-norm block", layer);
}

// Data for streams of small kernels.
struct rows_arguments {
    matrix_view<float> a, b;
};
struct pdl_kernel {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;
    using arguments = rows_arguments;
};
using rows_16 = warp_tile<float, 16, 32>;

// b = a; the next kernel may start when a has been read.
struct read_then_launch : pdl_kernel {
    template <class Block, class Shared>
    static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            pdl_wait(self);
            rows_16 values;
            load(self, values, args.a.at(0, 0));
            pdl_launch_dependents(self);
            store(self, args.b.at(0, 0), values);
        });
    }
};
// Overwrites a before pdl_wait: its predecessor has read it.
struct overwrite : pdl_kernel {
    template <class Block, class Shared>
    static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            rows_16 values;
            fill(self, values, 1.0f);
            store(self, args.a.at(0, 0), values);
            pdl_wait(self);
            store(self, args.b.at(0, 0), values);
        });
    }
};
// Reads a before pdl_wait: the kernel before its predecessor has written it, and the predecessor has waited for that.
struct read_early : pdl_kernel {
    template <class Block, class Shared>
    static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            rows_16 values;
            load(self, values, args.a.at(0, 0));
            pdl_wait(self);
            store(self, args.b.at(0, 0), values);
        });
    }
};

TEST_CASE("a launch of dependents is mutated where the next kernel relies on it") {
    std::vector<float> first(16 * 32), second(16 * 32), third(16 * 32);
    const auto view = [](std::vector<float>& memory) { return matrix(memory.data(), 16, 32); };
    const auto launches = [&]<class... Kernels>(const std::vector<rows_arguments>& all) {
        auto next = all.begin();
        (launch<Kernels>(world::host_checked, {1}, *next++), ...);
    };
    const rows_arguments one{view(first), view(second)};
    const auto write_after_read = [&] { launches.operator()<read_then_launch, overwrite>({one, one}); };
    const auto read_of_earlier = [&] {
        launches.operator()<read_then_launch, read_then_launch, read_early>(
            {{view(first), view(second)}, {view(first), view(third)}, {view(second), view(third)}});
    };
    for (const std::function<void()>& work :
         {std::function<void()>(write_after_read), std::function<void()>(read_of_earlier)}) {
        const host::mutation_score score = check_stream("launch of dependents", work);
        CHECK(score.text().find(
                  "conflict with the previous kernel before pdl_wait: PDL launch of dependents by warp at ") !=
              std::string::npos);
    }
}

TEST_CASE("a launch of dependents is not mutated where nothing relies on it") {
    std::vector<float> first(16 * 32), second(16 * 32), third(16 * 32);
    const auto view = [](std::vector<float>& memory) { return matrix(memory.data(), 16, 32); };
    const auto work = [&] {
        launch<read_then_launch>(world::host_checked, {1}, {view(first), view(second)});
        launch<read_then_launch>(world::host_checked, {1}, {view(second), view(third)});
    };
    const host::mutation_score score = check_stream("chain", work);
    CHECK(score.total() == 1);  // the wait of the second kernel
}

TEST_CASE("does not mutate a stream with a hazard") {
    std::vector<float> first(16 * 32), second(16 * 32);
    const rows_arguments one{matrix(first.data(), 16, 32), matrix(second.data(), 16, 32)};
    const rows_arguments swapped{one.b, one.a};
    CHECK_THROWS_AS(host::mutate_launches([&] {
                        launch<read_then_launch>(world::host_checked, {1}, one);
                        launch<read_early>(world::host_checked, {1}, swapped);
                    }),
                    hazard_error);
}

}  // namespace
