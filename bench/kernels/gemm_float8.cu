// e4m3 GEMM against cuBLASLt (A row-major, B transposed, bf16 output). The contestants of a table are interleaved in
// one run, as CUDA graphs; medians of many rounds on random data. TFLOP/s count 2 M N K. cuBLASLt runs with fast
// accumulation and with promoted accumulation, each with the algorithm of its heuristic. --json FILE writes the tables
// for bench/plot.py; "rates" or "scales" selects one.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm/hopper.hpp>

#include "device.hpp"
#include "report.hpp"

#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <memory>

using namespace imbrex;
using namespace bench;

namespace {

void check(cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    std::fprintf(stderr, "%s: %s\n", what, cublasLtGetStatusString(status));
    std::exit(1);
}
using bench::check;

// Offset of the second scale: cuBLASLt does not accept it directly after the first.
constexpr int second_scale = 64;

// A cuBLASLt matmul plan. Row-major D = A B^T is column-major D^T = B A^T with both operands along k.
class blas {
  public:
    blas(const sizes& s, const float* scales, bool fast) : workspace_(std::size_t{64} << 20) {
        check(cublasLtCreate(&handle_), "cublasLtCreate");
        check(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
        set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
        set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{fast});
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(scales + second_scale));
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(scales));
        check(cublasLtMatrixLayoutCreate(&left_, CUDA_R_8F_E4M3, s.k, s.n, s.k), "layout");
        check(cublasLtMatrixLayoutCreate(&right_, CUDA_R_8F_E4M3, s.k, s.m, s.k), "layout");
        check(cublasLtMatrixLayoutCreate(&out_, CUDA_R_16BF, s.n, s.m, s.n), "layout");
        cublasLtMatmulPreference_t preference;
        check(cublasLtMatmulPreferenceCreate(&preference), "preference");
        const std::size_t bytes = workspace_.bytes();
        check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                   sizeof bytes),
              "workspace");
        int found = 0;
        check(cublasLtMatmulAlgoGetHeuristic(handle_, product_, left_, right_, out_, out_, preference, 1, &choice_,
                                             &found),
              "heuristic");
        if (found == 0) {
            std::fprintf(stderr, "cuBLASLt has no algorithm for %s\n", s.text().c_str());
            std::exit(1);
        }
        cublasLtMatmulPreferenceDestroy(preference);
    }
    blas(const blas&) = delete;
    blas& operator=(const blas&) = delete;
    ~blas() {
        for (cublasLtMatrixLayout_t one : {left_, right_, out_}) cublasLtMatrixLayoutDestroy(one);
        cublasLtMatmulDescDestroy(product_);
        cublasLtDestroy(handle_);
    }

    void multiply(cudaStream_t stream, const e4m3* a, const e4m3* b, bf16* out) const {
        const float one = 1, zero = 0;
        check(cublasLtMatmul(handle_, product_, &one, b, left_, a, right_, &zero, out, out_, out, out_, &choice_.algo,
                             workspace_.data(), workspace_.bytes(), stream),
              "cublasLtMatmul");
    }

  private:
    template <class T>
    void set(cublasLtMatmulDescAttributes_t which, T value) {
        check(cublasLtMatmulDescSetAttribute(product_, which, &value, sizeof value), "attribute");
    }

    device_array<char> workspace_;
    cublasLtHandle_t handle_;
    cublasLtMatmulDesc_t product_;
    cublasLtMatrixLayout_t left_, right_, out_;
    cublasLtMatmulHeuristicResult_t choice_{};
};

constexpr gemm_shape wide{.block_n = 256, .block_k = 128, .stages = 4, .cluster = 1};
constexpr gemm_shape narrow{.block_n = 128, .block_k = 128, .stages = 6, .cluster = 1};

template <class Epilogue, gemm_shape Shape, class Mainloop>
void launch(cudaStream_t stream, const gemm_problem<e4m3, bf16>& p, const Epilogue& epilogue,
            const Mainloop& mainloop = {}) {
    using kernel =
        gemm_hopper<e4m3, bf16, Epilogue, matrix_layout::row_major, matrix_layout::column_major, Shape, Mainloop>;
    int num_sms = 0;
    check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0), "attribute");
    device::launch<kernel>({num_sms / Shape.cluster * Shape.cluster}, {{kernel::describe(p, epilogue, mainloop)}, 1},
                           stream);
}

// Operands, scales and the outputs of both contestants.
struct data {
    sizes s;
    device_array<e4m3> a{std::size_t(s.m) * s.k, 1}, b{std::size_t(s.n) * s.k, 2};
    device_array<bf16> ours{std::size_t(s.m) * s.n}, theirs{std::size_t(s.m) * s.n};
    device_array<float> scales{second_scale + 1}, of_rows{std::size_t(s.m)}, of_columns{std::size_t(s.n)};
    device_array<float> of_a_blocks{std::size_t(s.m) * s.k / 128}, of_b_blocks{std::size_t(s.n) / 128 * s.k / 128};

    explicit data(const sizes& which) : s(which) {
        for (const auto* one : {&scales, &of_rows, &of_columns, &of_a_blocks, &of_b_blocks}) {
            const std::vector<float> ones(one->bytes() / sizeof(float), 1.0f);
            check(cudaMemcpy(one->data(), ones.data(), one->bytes(), cudaMemcpyHostToDevice), "copy");
        }
        ours.poison();
    }
    gemm_problem<e4m3, bf16> problem() const { return {s.m, s.n, s.k, {a.data()}, {b.data()}, {ours.data()}}; }
    epilogue::scale_by_pointer tensor_scales() const { return {scales.data(), scales.data() + second_scale}; }
    promoted_with_block_scales block_scales() const {
        return {gemm_matrix_view<const float>(of_a_blocks.data(), s.m, s.k / 128),
                gemm_matrix_view<const float>(of_b_blocks.data(), s.n / 128, s.k / 128)};
    }

    void warn_unless_close(const char* what) const {
        const std::vector<bf16> x = ours.download(), y = theirs.download();
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            difference += std::pow(static_cast<double>(static_cast<float>(x[i])) - static_cast<float>(y[i]), 2);
            size += std::pow(static_cast<float>(y[i]), 2);
        }
        const double relative = std::sqrt(difference / size);
        if (!(relative < 0.004)) std::printf("WRONG: %s, %s: %.2g off\n", what, s.text().c_str(), relative);
    }
};

// Per-tensor scales.
report rates(pace how) {
    report table(std::string("e4m3 to bf16, per-tensor scales, ") + name_of(how), "TFLOP/s");
    for (const sizes& s :
         {sizes{4096, 4096, 4096}, sizes{8192, 8192, 8192}, sizes{4096, 7168, 2048}, sizes{16384, 4096, 7168}}) {
        const data d(s);
        const blas fast(s, d.scales.data(), true), exact(s, d.scales.data(), false);
        const auto times = take_turns(
            {{"cuBLASLt fast",
              [&](cudaStream_t stream, int) { fast.multiply(stream, d.a.data(), d.b.data(), d.theirs.data()); }},
             {"Imbrex fast",
              [&](cudaStream_t stream, int) {
                  launch<epilogue::scale_by_pointer, wide, accumulate_in_place>(stream, d.problem(), d.tensor_scales());
              }},
             {"cuBLASLt promoted",
              [&](cudaStream_t stream, int) { exact.multiply(stream, d.a.data(), d.b.data(), d.theirs.data()); }},
             {"Imbrex promoted",
              [&](cudaStream_t stream, int) {
                  launch<epilogue::scale_by_pointer, narrow, promoted>(stream, d.problem(), d.tensor_scales());
              }}},
            how == pace::paused ? 16 : 40, 4, how);
        d.warn_unless_close("per-tensor scales");
        table.add(s.text(), {{"cuBLASLt fast", s.flop() / times[0] * 1e-9},
                             {"Imbrex fast", s.flop() / times[1] * 1e-9},
                             {"cuBLASLt promoted", s.flop() / times[2] * 1e-9},
                             {"Imbrex promoted", s.flop() / times[3] * 1e-9}});
    }
    table.note("clocks: " + clocks());
    return table;
}

// The cost of finer scales.
report scales() {
    report table("e4m3 to bf16, promoted, finer scales, sustained", "TFLOP/s");
    using rows_and_columns = epilogue::composition<epilogue::scale_rows, epilogue::scale_columns>;
    for (const sizes& s : {sizes{4096, 4096, 4096}, sizes{8192, 8192, 8192}, sizes{4096, 7168, 2048}}) {
        const data d(s);
        const blas exact(s, d.scales.data(), false);
        const rows_and_columns fine = epilogue::compose(epilogue::scale_rows{{d.of_rows.data(), s.m}},
                                                        epilogue::scale_columns{{d.of_columns.data(), s.n}});
        const auto times = take_turns(
            {{"cuBLASLt, per-tensor",
              [&](cudaStream_t stream, int) { exact.multiply(stream, d.a.data(), d.b.data(), d.theirs.data()); }},
             {"per row and column",
              [&](cudaStream_t stream, int) { launch<rows_and_columns, narrow, promoted>(stream, d.problem(), fine); }},
             {"128 x 128 blocks",
              [&](cudaStream_t stream, int) {
                  launch<epilogue::identity, narrow, promoted_with_block_scales>(stream, d.problem(), {},
                                                                                 d.block_scales());
              }}},
            40, 4, pace::sustained);
        d.warn_unless_close("finer scales");
        table.add(s.text(), {{"cuBLASLt, per-tensor", s.flop() / times[0] * 1e-9},
                             {"per row and column", s.flop() / times[1] * 1e-9},
                             {"128 x 128 blocks", s.flop() / times[2] * 1e-9}});
    }
    table.note("clocks: " + clocks());
    return table;
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    std::printf("%s\n", device_name().c_str());
    std::vector<report> tables;
    for (const pace how : {pace::sustained, pace::paused}) {
        if (wanted(count, words, "rates")) tables.push_back(rates(how));
    }
    if (wanted(count, words, "scales")) tables.push_back(scales());
    return publish(tables, json_file(count, words)) ? 0 : 1;
}
