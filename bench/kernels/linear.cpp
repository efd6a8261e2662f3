// CPU GEMV and GEMM with quantised weights in the host world, at the sizes of a small model (Qwen2.5-0.5B), weights
// from memory: one row of x, which is bound by reading the weights, against a plain read of the same bytes; and many
// rows, which are compute bound.
#include <imbrex/kernels/linear.hpp>

#define ANKERL_NANOBENCH_IMPLEMENT
#include <nanobench.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

using namespace imbrex;

namespace {

// Larger than any cache: every call uses other weights.
constexpr std::size_t pool_bytes = std::size_t{640} << 20;

struct memory {
    std::vector<std::uint64_t> values, scales;

    // Small values in any type: every other byte is the upper half of a bf16.
    memory() : values(pool_bytes / 8, 0x3c113c933c073c51u), scales(pool_bytes / 64, 0x3c003c003c003c00u) {}
};

template <class Weights>
struct weight_source {
    static constexpr double bytes_of_weight() {
        if constexpr (requires { Weights::values_per_byte; }) {
            return 1.0 / Weights::values_per_byte;
        } else {
            return sizeof(typename Weights::element);
        }
    }
    static constexpr double bytes_of_scale() {
        if constexpr (requires { sizeof(typename Weights::scale); }) {
            return sizeof(typename Weights::scale) / 32.0;
        } else {
            return 0;
        }
    }

    memory& from;
    std::int64_t n, k;
    std::size_t at = 0;

    double bytes() const { return static_cast<double>(n * k) * (bytes_of_weight() + bytes_of_scale()); }
    Weights next() {
        const auto size = static_cast<std::size_t>(static_cast<double>(n * k) * bytes_of_weight() + 4095) / 4096 * 4096;
        if (at + size > pool_bytes) at = 0;
        Weights weights;
        weights.values =
            reinterpret_cast<decltype(weights.values)>(reinterpret_cast<const char*>(from.values.data()) + at);
        weights.rows = n, weights.columns = k;
        if constexpr (requires { weights.row_stride; }) weights.row_stride = k;
        if constexpr (requires { weights.scales; }) {
            weights.scales = reinterpret_cast<decltype(weights.scales)>(from.scales.data());
        }
        at += size;
        return weights;
    }
};

// Each block sums its share of the bytes.
struct read_kernel {
    static constexpr int warps = 1;
    struct arguments {
        const char* from;
        std::size_t bytes;
        double* sums;
    };
    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        const std::size_t part = args.bytes / block.count().x / 256 * 256;
        const char* const from = args.from + block.index().x * part;
        std::uint64_t sums[32] = {};
        for (std::size_t i = 0; i + 256 <= part; i += 256) {
            std::uint64_t some[32];
            std::memcpy(some, from + i, sizeof some);
            for (int j = 0; j < 32; ++j) sums[j] += some[j];
        }
        double total = 0;
        for (const std::uint64_t one : sums) total += static_cast<double>(one);
        args.sums[block.index().x] = total;
    }
};

template <class Weights>
void measure(memory& from, const std::string& name, int m, std::int64_t n, std::int64_t k) {
    std::vector<float> x(static_cast<std::size_t>(m) * k), out(static_cast<std::size_t>(m) * n);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.1f * static_cast<float>(i));
    weight_source<Weights> source{from, n, k};
    ankerl::nanobench::Bench bench;
    const std::string sizes = " m " + std::to_string(m) + ", n " + std::to_string(n) + ", k " + std::to_string(k);
    // Per byte of weights, or per operation.
    if (m == 1) {
        bench.unit("byte").batch(source.bytes());
    } else {
        bench.unit("flop").batch(2.0 * m * static_cast<double>(n * k));
    }
    bench.warmup(1).minEpochIterations(m == 1 ? 20 : 3);
    bench.run(name + sizes, [&] {
        linear<float, Weights, float>::launch(
            world::host,
            {.x = as_rows<const float>(x.data(), m, k), .weights = source.next(), .out = as_rows(out.data(), m, n)});
    });
    ankerl::nanobench::doNotOptimizeAway(out[0]);
}

void measure_all(memory& from, int m, std::int64_t n, std::int64_t k) {
    measure<unquantised_weight_rows<float>>(from, "float", m, n, k);
    measure<unquantised_weight_rows<bf16>>(from, "bf16", m, n, k);
    measure<int8_weight_rows<>>(from, "int8", m, n, k);
    measure<int8_weight_rows<activation_quantisation::int8>>(from, "int8, int8 activations", m, n, k);
    measure<int4_weight_rows<>>(from, "int4", m, n, k);
    measure<int4_weight_rows<activation_quantisation::int8>>(from, "int4, int8 activations", m, n, k);
    measure<e4m3_weight_rows>(from, "e4m3", m, n, k);
}

}  // namespace

int main() {
    memory from;
    std::vector<double> sums(64);
    const int blocks = 4 * imbrex::num_sms(world::host);
    const std::size_t bytes = pool_bytes / 2;
    ankerl::nanobench::Bench()
        .unit("byte")
        .batch(static_cast<double>(bytes))
        .warmup(1)
        .minEpochIterations(2)
        .run("read memory", [&] {
            host::launch<read_kernel>({std::min(blocks, 64)},
                                      {reinterpret_cast<const char*>(from.values.data()), bytes, sums.data()});
        });
    ankerl::nanobench::doNotOptimizeAway(sums[0]);
    measure_all(from, 1, 4864, 896);
    measure_all(from, 1, 896, 4864);
    measure_all(from, 1, 151936, 896);
    for (const int m : {8, 32, 512}) measure_all(from, m, 4864, 896);
    measure_all(from, 32, 896, 4864);
}
