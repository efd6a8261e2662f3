// Mixture of experts: the grouped GEMM over 32 experts against the dense GEMM of as many rows and against cuBLAS called
// once per expert, with bf16 and MXFP4 weights, and the time of router and combine. Contestants are interleaved in one run, as CUDA graphs; medians
// on random data. TFLOP/s count 2 rows N K of the rows that have a token: padding counts as lost time.
// --json FILE writes the tables for bench/plot.py; names such as "grouped" or "router" select tables.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/moe_combine.hpp>
#include <imbrex/kernels/moe_gemm.hpp>
#include <imbrex/kernels/moe_gemm_quantised.hpp>
#include <imbrex/kernels/moe_gemv.hpp>
#include <imbrex/kernels/moe_router.hpp>

#include "device.hpp"
#include "report.hpp"

#include <cublas_v2.h>

#include <cmath>
#include <cstring>
#include <numeric>

using namespace imbrex;
using namespace bench;

namespace {

constexpr int experts = 32, top_k = 4;

// Choices of each expert: equally many, or by Zipf's law.
std::vector<int> even_counts(int choices) {
    return std::vector<int>(experts, choices / experts);
}
std::vector<int> zipf_counts(int choices) {
    std::vector<int> counts(experts);
    double all = 0;
    for (int i = 1; i <= experts; ++i) all += 1.0 / i;
    for (int i = 1; i <= experts; ++i) counts[i - 1] = static_cast<int>(choices / (i * all));
    counts[0] += choices - std::accumulate(counts.begin(), counts.end(), 0);
    return counts;
}

// A routing with these numbers of rows, of random tokens.
struct given_routing {
    moe_sizes sizes;
    std::vector<int> counts;
    device_array<char> workspace;
    moe_routing routing;

    given_routing(int tokens, const std::vector<int>& counts, int tile_rows = 128)
        : sizes{tokens, experts, top_k, tile_rows},
          counts(counts),
          workspace(moe_routing::workspace_bytes(sizes)),
          routing(moe_routing::in_workspace(workspace.data(), sizes)) {
        std::vector<int> token_of_row, expert_of_tile;
        std::mt19937 generator(1);
        for (int expert = 0; expert < experts; ++expert) {
            for (int i = 0; i < counts[expert]; ++i) {
                if (i % sizes.tile_rows == 0) expert_of_tile.push_back(expert);
                token_of_row.push_back(static_cast<int>(generator() % tokens));
            }
            while (token_of_row.size() % sizes.tile_rows != 0) token_of_row.push_back(moe_routing::no_token);
        }
        const int tiles = static_cast<int>(expert_of_tile.size());
        const auto upload = [](int* to, const std::vector<int>& values) {
            check(cudaMemcpy(to, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice), "routing");
        };
        upload(routing.token_of_row, token_of_row);
        upload(routing.expert_of_tile, expert_of_tile);
        upload(routing.tiles, {tiles});
    }
};

// cuBLAS, once for each expert, on rows that lie side by side already.
class blas {
  public:
    blas() : workspace_(std::size_t{64} << 20) { cublasCreate(&handle_); }
    ~blas() { cublasDestroy(handle_); }

    void multiply(cudaStream_t stream, const bf16* a, const bf16* b, bf16* out, const std::vector<int>& counts, int n,
                  int k) {
        const float one = 1, zero = 0;
        cublasSetStream(handle_, stream);
        cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes());
        for (std::size_t expert = 0; expert < counts.size(); ++expert) {
            if (counts[expert] == 0) continue;
            cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n, counts[expert], k, &one, b, CUDA_R_16BF, k, a,
                         CUDA_R_16BF, k, &zero, out, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
            a += std::size_t(counts[expert]) * k;
            b += std::size_t(n) * k;
            out += std::size_t(counts[expert]) * n;
        }
    }

  private:
    cublasHandle_t handle_;
    device_array<char> workspace_;
};

std::vector<report::value> compare_grouped(blas& peer, const std::vector<int>& counts, int n, int k, int rounds) {
    const int rows = std::accumulate(counts.begin(), counts.end(), 0), tokens = rows / top_k;
    const given_routing given(tokens, counts);
    const std::size_t most = given.sizes.max_rows();
    const device_array<bf16> a(most * k, 1), b(std::size_t(experts) * n * k, 2);
    device_array<bf16> out(most * n);
    out.poison();
    using dense = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major}>;
    const gemm_problem<bf16, bf16> together{rows, n, k, {a.data()}, {b.data()}, {out.data()}};
    const moe_gemm_problem<bf16, bf16> problem{n, k, given.routing, {a.data()}, {b.data()}, {out.data()}};
    const auto times = take_turns(
        {{"dense GEMM", [&](cudaStream_t stream, int) { dense::launch(world::device, together, {}, stream); }},
         {"cuBLAS by expert",
          [&](cudaStream_t stream, int) { peer.multiply(stream, a.data(), b.data(), out.data(), counts, n, k); }},
         {"sorted rows",
          [&](cudaStream_t stream, int) {
              moe_gemm<bf16, bf16, moe_rows::sorted>::launch(world::device, problem, {}, stream);
          }},
         {"gathered rows",
          [&](cudaStream_t stream, int) {
              moe_gemm<bf16, bf16, moe_rows::gathered>::launch(world::device, problem, {}, stream);
          }}},
        rounds, 1, pace::sustained);
    const double flop = sizes{rows, n, k}.flop() * 1e-9;
    return {{"dense GEMM", flop / times[0]},
            {"cuBLAS by expert", flop / times[1]},
            {"sorted rows", flop / times[2]},
            {"gathered rows", flop / times[3]}};
}

// MXFP4 matrices of all experts, below one another: the same one again and again.
using mxfp4 = mxfp4_weights<bf16>;
device_array<mxfp4::weight_tile> random_mxfp4(int n, int k) {
    std::mt19937 generator(3);
    std::vector<e2m1x2> values(std::size_t(n) * k / 2);
    for (e2m1x2& value : values) value = e2m1x2::from_bits(static_cast<std::uint8_t>(generator()));
    const std::vector<ue8m0> scales(std::size_t(n) * k / 32, ue8m0::from_bits(122));
    const auto one = pack_weights<mxfp4>(values.data(), scales.data(), n, k);
    device_array<mxfp4::weight_tile> all(one.size() * experts);
    for (int expert = 0; expert < experts; ++expert) {
        check(cudaMemcpy(all.data() + expert * one.size(), one.data(), one.size() * sizeof(one[0]),
                         cudaMemcpyHostToDevice),
              "weights");
    }
    return all;
}

std::vector<report::value> compare_mxfp4(const device_array<mxfp4::weight_tile>& weights,
                                         const std::vector<int>& counts, int n, int k, int rounds, int tile_rows) {
    const int rows = std::accumulate(counts.begin(), counts.end(), 0), tokens = rows / top_k;
    const given_routing given(tokens, counts, tile_rows);
    const std::size_t most = given.sizes.max_rows();
    const device_array<bf16> a(most * k, 1), b(std::size_t(experts) * n * k, 2);
    device_array<bf16> out(most * n);
    const moe_gemm_problem<bf16, bf16> problem{n, k, given.routing, {a.data()}, {b.data()}, {out.data()}};
    const auto times =
        take_turns({{"bf16, gathered",
                     [&](cudaStream_t stream, int) {
                         moe_gemm<bf16, bf16, moe_rows::gathered>::launch(world::device, problem, {}, stream);
                     }},
                    {"MXFP4, sorted",
                     [&](cudaStream_t stream, int) {
                         moe_gemm_quantised<mxfp4, bf16, moe_rows::sorted>::launch(world::device, problem,
                                                                                   weights.data(), {}, stream);
                     }},
                    {"MXFP4, gathered",
                     [&](cudaStream_t stream, int) {
                         moe_gemm_quantised<mxfp4, bf16, moe_rows::gathered>::launch(world::device, problem,
                                                                                     weights.data(), {}, stream);
                     }}},
                   rounds, 1, pace::sustained);
    const double flop = sizes{rows, n, k}.flop() * 1e-9;
    return {
        {"bf16, gathered", flop / times[0]}, {"MXFP4, sorted", flop / times[1]}, {"MXFP4, gathered", flop / times[2]}};
}

report quantised() {
    report table("MXFP4 weights, 32 experts, 2880 x 5760", "TFLOP/s");
    const auto weights = random_mxfp4(5760, 2880);
    for (const auto& [rows, tile_rows] : {std::pair{16384, 128}, {16384, 64}, {2048, 64}}) {
        const std::string all = std::to_string(rows) + " rows, tiles of " + std::to_string(tile_rows);
        table.add(all + ", even", compare_mxfp4(weights, even_counts(rows), 5760, 2880, 40, tile_rows));
        table.add(all + ", Zipf", compare_mxfp4(weights, zipf_counts(rows), 5760, 2880, 40, tile_rows));
    }
    table.note("clocks: " + clocks());
    return table;
}

report grouped(blas& peer) {
    report table("bf16, 32 experts, 2880 x 5760", "TFLOP/s");
    for (const int rows : {16384, 65536, 2048}) {
        const std::string all = std::to_string(rows) + " rows";
        table.add(all + ", even", compare_grouped(peer, even_counts(rows), 5760, 2880, 40));
        table.add(all + ", Zipf", compare_grouped(peer, zipf_counts(rows), 5760, 2880, 40));
    }
    table.note("clocks: " + clocks());
    return table;
}

// Few tokens: TB/s of the weights that are read. Each launch of a graph has other experts, as a model's layers have, so
// none finds its weights in the L2 cache.
report few_tokens() {
    report table("few tokens, MXFP4 experts, caches cold", "TB/s");
    constexpr int ffn = 2880, hidden = 2880, copies = 8;
    const auto gate_up = random_mxfp4(2 * ffn, hidden), down = random_mxfp4(hidden, ffn);
    const device_array<bf16> bias(std::size_t(experts) * 2 * ffn, 4);
    using clamped = epilogue::biased_glu<bf16, activation::clamped_swiglu>;
    const clamped gate{{bias.data(), 2 * ffn, 2 * ffn}, {}};
    const epilogue::bias<bf16> add{{bias.data(), hidden, hidden}};
    for (const int tokens : {1, 2, 4, 8, 32}) {
        const int used = std::min(experts, tokens * top_k), tile_rows = tokens > 8 ? 16 : 8;
        std::vector<given_routing> routings;
        for (int copy = 0; copy < copies; ++copy) {
            std::vector<int> counts(experts);
            for (int i = 0; i < tokens * top_k; ++i) ++counts[(copy * used + i) % experts];
            routings.emplace_back(tokens, counts, tile_rows);
        }
        const std::size_t rows = routings[0].sizes.max_rows();
        const device_array<bf16> x(std::size_t(tokens) * hidden, 5);
        device_array<bf16> h(rows * ffn, 6), y(rows * hidden);
        const auto first = [&](cudaStream_t stream, int copy) {
            moe_gemv<mxfp4, bf16, moe_rows::gathered, clamped>::launch(
                world::device, {ffn, hidden, routings[copy % copies].routing, {x.data()}, {}, {h.data()}},
                gate_up.data(), gate, stream);
        };
        const auto second = [&](cudaStream_t stream, int copy) {
            moe_gemv<mxfp4, bf16, moe_rows::sorted, epilogue::bias<bf16>>::launch(
                world::device, {hidden, ffn, routings[copy % copies].routing, {h.data()}, {}, {y.data()}}, down.data(),
                add, stream);
        };
        const auto times =
            take_turns({{"gate and up", first},
                        {"down", second},
                        {"both", [&](cudaStream_t stream, int copy) { first(stream, copy), second(stream, copy); }}},
                       30, copies);
        const double bytes = 1.0 * used * ffn * hidden * (0.5 + 1.0 / 32) * 1e-9;
        table.add(std::to_string(tokens) + " tokens",
                  {{"gate and up", 2 * bytes / times[0]}, {"down", bytes / times[1]}, {"both", 3 * bytes / times[2]}});
    }
    return table;
}

report routing_time() {
    report table("router and combine, 32 experts, top 4, hidden 2880", "us");
    for (const int tokens : {1, 32, 512, 4096, 16384}) {
        const moe_sizes sizes{tokens, experts, top_k};
        device_array<char> workspace(moe_routing::workspace_bytes(sizes));
        const moe_routing routing = moe_routing::in_workspace(workspace.data(), sizes);
        const device_array<float> logits(std::size_t(tokens) * experts, 1);
        const device_array<bf16> y(std::size_t(sizes.max_rows()) * 2880, 2);
        device_array<bf16> out(std::size_t(tokens) * 2880);
        const auto times = take_turns(
            {{"router",
              [&](cudaStream_t stream, int) {
                  moe_router<float>::launch(
                      world::device, {as_rows<const float>(logits.data(), tokens, experts), routing}, {}, stream);
              }},
             {"combine",
              [&](cudaStream_t stream, int) {
                  moe_combine<bf16>::launch(
                      world::device, {.y = {y.data()}, .routing = routing, .out = as_rows(out.data(), tokens, 2880)},
                      stream);
              }}},
            30, 10);
        table.add(std::to_string(tokens) + " tokens", {{"router", times[0] * 1e3}, {"combine", times[1] * 1e3}});
    }
    return table;
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    std::printf("%s\n", device_name().c_str());
    blas peer;
    std::vector<report> tables;
    if (wanted(count, words, "grouped")) tables.push_back(grouped(peer));
    if (wanted(count, words, "quantised")) tables.push_back(quantised());
    if (wanted(count, words, "few_tokens")) tables.push_back(few_tokens());
    if (wanted(count, words, "router")) tables.push_back(routing_time());
    return publish(tables, json_file(count, words)) ? 0 : 1;
}
