// A chain of GEMVs (M = 1) with the sizes of a model's layers, each using the result of the previous one: the small-M
// kernel against the GEMV with PDL prefetch of weights. Launches rotate over copies of the weights that exceed the
// caches. One CUDA graph, medians. --json FILE writes the tables for bench/plot.py.
#include <imbrex/kernels/gemm.hpp>

#include "device.hpp"
#include "report.hpp"

using namespace imbrex;
using namespace bench;

namespace {

struct shape {
    int n, k;
    bool gated;
    double bytes() const { return 2.0 * n * k * (gated ? 2 : 1); }
};
struct chain {
    const char* name;
    int repeats;
    std::vector<shape> products;
};

const std::vector<chain> chains{
    {"a layer of Llama-3.1-8B",
     8,
     {{6144, 4096, false}, {4096, 4096, false}, {14336, 4096, true}, {4096, 14336, false}}},
    {"a layer of Qwen2.5-0.5B", 24, {{1152, 896, false}, {896, 896, false}, {4864, 896, true}, {896, 4864, false}}},
    {"1 x 6144 x 4096", 16, {{6144, 4096, false}}},
    {"1 x 4096 x 4096", 16, {{4096, 4096, false}}},
    {"1 x 14336 x 4096, SwiGLU", 8, {{14336, 4096, true}}},
    {"1 x 4096 x 14336", 8, {{4096, 14336, false}}},
    {"1 x 128256 x 4096", 2, {{128256, 4096, false}}}};

template <pdl_prefetch Prefetch>
void multiply(const gemm_problem<bf16, bf16>& p, bool is_gated_product, cudaStream_t stream) {
    using plain = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major, .prefetch = Prefetch}>;
    using with_gate =
        gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major, .prefetch = Prefetch}, epilogue::swiglu>;
    if (is_gated_product) {
        with_gate::launch(world::device, p, {}, stream);
    } else {
        plain::launch(world::device, p, {}, stream);
    }
}

std::vector<report::value> bandwidths(const chain& one) {
    constexpr std::size_t widest = 131072;
    device_array<bf16> rows[2] = {device_array<bf16>(widest, 1), device_array<bf16>(widest, 2)};
    std::vector<device_array<bf16>> weights;
    double bytes = 0;
    for (int i = 0; i < one.repeats; ++i) {
        for (const shape& of : one.products) {
            weights.emplace_back(static_cast<std::size_t>(of.bytes() / 2), 3, 0.02f);
            bytes += of.bytes();
        }
    }
    const auto run = [&](auto call) {
        return [&, call](cudaStream_t stream, int) {
            for (std::size_t i = 0; i < weights.size(); ++i) {
                const shape& of = one.products[i % one.products.size()];
                call({1, of.n, of.k, {rows[i % 2].data()}, {weights[i].data()}, {rows[1 - i % 2].data()}}, of.gated,
                     stream);
            }
        };
    };
    const std::vector<float> times = take_turns(
        {{"small M", run(multiply<pdl_prefetch::none>)}, {"GEMV, PDL prefetch", run(multiply<pdl_prefetch::weights>)}},
        20);
    return {{"small M", bytes / times[0] / 1e9}, {"GEMV, PDL prefetch", bytes / times[1] / 1e9}};
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    report table("chain of GEMVs", "TB/s of weights");
    for (const chain& one : chains) table.add(one.name, bandwidths(one));
    table.note("clocks: " + clocks());
    return publish({table}, json_file(count, words)) ? 0 : 1;
}
