// bf16 GEMM beside cuBLAS in one run: the two take turns, medians of many rounds, on fresh random data. Each result is
// compared with cuBLAS's. TFLOP/s count 2 M N K.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm/hopper.hpp>

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using namespace imbrex;

namespace {

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

struct problem {
    int m, n, k;
};

template <class Launch>
float milliseconds(Launch launch) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    check(cudaEventRecord(begin), "record");
    launch();
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), "synchronize");
    float took = 0;
    check(cudaEventElapsedTime(&took, begin, end), "elapsed");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return took;
}

float median(std::vector<float> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

template <class Kernel>
typename Kernel::arguments arguments_of(bf16* a, bf16* b, bf16* out, const problem& p) {
    const gemm_problem<bf16, bf16> product{p.m, p.n, p.k, {a}, {b}, {out}};
    return {{Kernel::describe(product, {})}, 1};
}

bf16* random_matrix(std::size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> number;
    std::vector<bf16> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = i < 1u << 22 ? bf16(number(generator)) : values[i - (1u << 22)];
    bf16* there = nullptr;
    check(cudaMalloc(&there, count * sizeof(bf16)), "malloc");
    check(cudaMemcpy(there, values.data(), count * sizeof(bf16), cudaMemcpyHostToDevice), "copy");
    return there;
}

template <class... Kernels>
void compare(const problem& p, cublasHandle_t blas, int processors, const std::vector<const char*>& names) {
    bf16* a = random_matrix(static_cast<std::size_t>(p.m) * p.k, 1);
    bf16* b = random_matrix(static_cast<std::size_t>(p.k) * p.n, 2);
    const std::size_t out_count = static_cast<std::size_t>(p.m) * p.n;
    bf16 *ours = nullptr, *theirs = nullptr;
    check(cudaMalloc(&ours, out_count * sizeof(bf16)), "malloc");
    check(cudaMalloc(&theirs, out_count * sizeof(bf16)), "malloc");
    const auto run_blas = [&] {
        const float one = 1, zero = 0;
        // Row-major C = A B is column-major C^T = B^T A^T.
        cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, p.n, p.m, p.k, &one, b, CUDA_R_16BF, p.n, a, CUDA_R_16BF, p.k,
                     &zero, theirs, CUDA_R_16BF, p.n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    };
    std::vector<std::vector<float>> times(sizeof...(Kernels) + 1);
    std::vector<double> worst(sizeof...(Kernels), 0);
    const int rounds = 24;
    for (int round = 0; round < rounds + 4; ++round) {
        std::size_t which = 0;
        const float blas_time = milliseconds(run_blas);
        if (round >= 4) times[which].push_back(blas_time);
        (
            [&] {
                ++which;
                const auto args = arguments_of<Kernels>(a, b, ours, p);
                if (round == 0) check(cudaMemset(ours, 0xff, out_count * sizeof(bf16)), "poison");
                const float took = milliseconds([&] { device::launch<Kernels>({processors / 2 * 2}, args); });
                if (round >= 4) times[which].push_back(took);
                if (round == 0) {
                    std::vector<bf16> x(out_count), y(out_count);
                    check(cudaMemcpy(x.data(), ours, out_count * sizeof(bf16), cudaMemcpyDeviceToHost), "copy");
                    check(cudaMemcpy(y.data(), theirs, out_count * sizeof(bf16), cudaMemcpyDeviceToHost), "copy");
                    double difference = 0, size = 0;
                    for (std::size_t i = 0; i < out_count; ++i) {
                        const double d = static_cast<double>(float(x[i])) - float(y[i]);
                        difference += d * d;
                        size += static_cast<double>(float(y[i])) * float(y[i]);
                    }
                    worst[which - 1] = std::sqrt(difference / size);
                }
            }(),
            ...);
    }
    const double flop = 2.0 * p.m * p.n * p.k;
    const double blas_rate = flop / median(times[0]) * 1e-9;
    std::printf("| %d x %d x %d | %.0f |", p.m, p.n, p.k, blas_rate);
    for (std::size_t i = 1; i < times.size(); ++i) {
        const double rate = flop / median(times[i]) * 1e-9;
        std::printf(" %s %.0f (%.2fx, difference %.1e) |", names[i - 1], rate, rate / blas_rate, worst[i - 1]);
    }
    std::printf("\n");
    for (bf16* one : {a, b, ours, theirs}) cudaFree(one);
}

}  // namespace

int main() {
    if (!device_available()) {
        std::printf("skipped: there is no GPU to measure on\n");
        return 0;
    }
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "properties");
    std::printf("%s, %d multiprocessors; bf16 in and out, TFLOP/s, medians of 24 interleaved rounds\n", device.name,
                device.multiProcessorCount);
    cublasHandle_t blas;
    cublasCreate(&blas);
    using wide = gemm_hopper<bf16, bf16, plain_product>;
    using alone = gemm_hopper<bf16, bf16, plain_product, stored::normal, stored::normal, gemm_shape{256, 64, 4, 1, 8}>;
    using tall = gemm_hopper<bf16, bf16, plain_product, stored::normal, stored::normal, gemm_shape{256, 64, 4, 2, 16}>;
    for (const problem& p : {problem{4096, 4096, 4096}, problem{8192, 8192, 8192}, problem{16384, 16384, 16384},
                             problem{16384, 8192, 1024}, problem{4096, 11008, 4096}}) {
        compare<wide, alone, tall>(p, blas, device.multiProcessorCount, {"cluster 2", "no cluster", "band 16"});
    }
    cublasDestroy(blas);
    return 0;
}
