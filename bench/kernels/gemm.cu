// GEMM against cuBLAS. The contestants of a table are interleaved in one run, as CUDA graphs; medians of many rounds on
// random data. TFLOP/s count 2 M N K; TB/s count A, B and D once each. --json FILE writes the tables for bench/plot.py;
// names such as "dense" or "small_m" select tables.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm.hpp>

#include "device.hpp"
#include "report.hpp"

#include <cublas_v2.h>

#include <cmath>
#include <cstring>

using namespace imbrex;
using namespace bench;

namespace {

// cuBLAS with an explicit workspace, so that it can be captured.
class blas {
  public:
    blas() : workspace_(std::size_t{64} << 20) {
        cublasCreate(&handle_);
        cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes());
    }
    ~blas() { cublasDestroy(handle_); }

    // Row-major D = A B is column-major D^T = B^T A^T.
    void multiply(cudaStream_t stream, const bf16* a, matrix_layout a_layout, const bf16* b, matrix_layout b_layout,
                  bf16* out, const sizes& s) {
        const float one = 1, zero = 0;
        const bool a_is_m_major = a_layout == matrix_layout::column_major,
                   b_is_k_major = b_layout == matrix_layout::column_major;
        cublasSetStream(handle_, stream);
        cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes());
        cublasGemmEx(handle_, b_is_k_major ? CUBLAS_OP_T : CUBLAS_OP_N, a_is_m_major ? CUBLAS_OP_T : CUBLAS_OP_N, s.n,
                     s.m, s.k, &one, b, CUDA_R_16BF, b_is_k_major ? s.k : s.n, a, CUDA_R_16BF, a_is_m_major ? s.m : s.k,
                     &zero, out, CUDA_R_16BF, s.n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    }
    // int8 to int32, A row-major, B transposed.
    void multiply_integers(cudaStream_t stream, const std::int8_t* a, const std::int8_t* b, std::int32_t* out,
                           const sizes& s) {
        const std::int32_t one = 1, zero = 0;
        cublasSetStream(handle_, stream);
        cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes());
        cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, s.n, s.m, s.k, &one, b, CUDA_R_8I, s.k, a, CUDA_R_8I, s.k,
                     &zero, out, CUDA_R_32I, s.n, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT);
    }
    // In double, operands row-major.
    void multiply_exactly(const double* a, const double* b, double* out, const sizes& s) {
        const double one = 1, zero = 0;
        cublasSetStream(handle_, nullptr);
        cublasDgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, s.n, s.m, s.k, &one, b, s.n, a, s.k, &zero, out, s.n);
    }

  private:
    cublasHandle_t handle_;
    device_array<char> workspace_;
};

double relative_difference(const std::vector<bf16>& x, const std::vector<bf16>& y) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double a = static_cast<float>(x[i]), b = static_cast<float>(y[i]);
        difference += (a - b) * (a - b);
        size += b * b;
    }
    return std::sqrt(difference / size);
}

void warn_unless_close(const std::string& what, const device_array<bf16>& ours, const device_array<bf16>& theirs) {
    const double difference = relative_difference(ours.download(), theirs.download());
    if (!(difference < 0.004)) std::printf("WRONG: %s differs from the peer by %.2g\n", what.c_str(), difference);
}

template <matrix_layout A, matrix_layout B>
std::vector<report::value> compare_dense(blas& peer, const sizes& s, int rounds, pace how = pace::sustained) {
    const device_array<bf16> a(std::size_t(s.m) * s.k, 1), b(std::size_t(s.k) * s.n, 2);
    device_array<bf16> ours(std::size_t(s.m) * s.n), theirs(std::size_t(s.m) * s.n);
    ours.poison();
    using product = gemm<bf16, bf16, gemm_options{.a = A, .b = B}>;
    const gemm_problem<bf16, bf16> problem{s.m, s.n, s.k, {a.data()}, {b.data()}, {ours.data()}};
    const auto times = take_turns(
        {{"cuBLAS",
          [&](cudaStream_t stream, int) { peer.multiply(stream, a.data(), A, b.data(), B, theirs.data(), s); }},
         {"Imbrex", [&](cudaStream_t stream, int) { product::launch(world::device, problem, {}, stream); }}},
        rounds, 1, how);
    warn_unless_close(s.text(), ours, theirs);
    return {{"cuBLAS", s.flop() / times[0] * 1e-9}, {"Imbrex", s.flop() / times[1] * 1e-9}};
}

report dense(blas& peer, pace how) {
    report table(std::string("bf16, A and B row-major, ") + name_of(how), "TFLOP/s");
    for (const sizes& s : {sizes{4096, 4096, 4096}, sizes{8192, 8192, 8192}, sizes{16384, 16384, 16384},
                           sizes{16384, 8192, 1024}, sizes{4096, 11008, 4096}}) {
        const int rounds = s.flop() > 5e12 ? 10 : how == pace::paused ? 24 : 60;
        table.add(s.text(), compare_dense<matrix_layout::row_major, matrix_layout::row_major>(peer, s, rounds, how));
    }
    table.note("clocks: " + clocks());
    return table;
}

report layouts(blas& peer) {
    const sizes s{8192, 8192, 8192};
    report table("bf16 " + s.text() + ", other layouts", "TFLOP/s");
    table.add("A, B transposed", compare_dense<matrix_layout::row_major, matrix_layout::column_major>(peer, s, 12));
    table.add("A transposed, B", compare_dense<matrix_layout::column_major, matrix_layout::row_major>(peer, s, 12));
    table.add("both transposed", compare_dense<matrix_layout::column_major, matrix_layout::column_major>(peer, s, 12));
    return table;
}

template <class Kernel, matrix_layout B, class In, class Out>
void launch_ampere(cudaStream_t stream, const gemm_problem<In, Out>& p) {
    const gemm_views<In, Out, matrix_layout::row_major, B, false> views(p);
    const auto tiles = [](int total, int part) { return (total + part - 1) / part; };
    const typename Kernel::arguments arguments{views.a,
                                               views.b,
                                               views.out,
                                               {},
                                               tiles(p.m, Kernel::block_m),
                                               tiles(p.n, Kernel::block_n),
                                               tiles(p.k, Kernel::block_k),
                                               1};
    launch<Kernel>(world::device, {arguments.tile_rows * arguments.tile_columns}, arguments, stream);
}

report ampere_class(blas& peer, pace how) {
    report table(std::string("sm_80-class kernel, ") + name_of(how), "TFLOP/s");
    const sizes s{8192, 8192, 8192};
    const auto add = [&](const std::string& what, const contestant& theirs, const contestant& ours) {
        const auto times = take_turns({theirs, ours}, how == pace::paused ? 16 : 60, 1, how);
        table.add(what, {{theirs.name, s.flop() / times[0] * 1e-9}, {ours.name, s.flop() / times[1] * 1e-9}});
    };
    {
        const device_array<bf16> a(std::size_t(s.m) * s.k, 1), b(std::size_t(s.k) * s.n, 2);
        device_array<bf16> ours(std::size_t(s.m) * s.n), theirs(std::size_t(s.m) * s.n);
        using kernel = gemm_ampere<bf16, bf16, epilogue::identity>;
        add("bf16 " + s.text(),
            {"cuBLAS",
             [&](cudaStream_t stream, int) {
                 peer.multiply(stream, a.data(), matrix_layout::row_major, b.data(), matrix_layout::row_major,
                               theirs.data(), s);
             }},
            {"Imbrex, sm_80 class", [&](cudaStream_t stream, int) {
                 const gemm_problem<bf16, bf16> problem{s.m, s.n, s.k, {a.data()}, {b.data()}, {ours.data()}};
                 launch_ampere<kernel, matrix_layout::row_major>(stream, problem);
             }});
        warn_unless_close("sm_80 class", ours, theirs);
    }
    {
        const device_array<std::int8_t> a(std::size_t(s.m) * s.k, 1, 30), b(std::size_t(s.k) * s.n, 2, 30);
        device_array<std::int32_t> ours(std::size_t(s.m) * s.n), theirs(std::size_t(s.m) * s.n);
        using kernel = gemm_ampere<std::int8_t, std::int32_t, epilogue::identity, matrix_layout::row_major,
                                   matrix_layout::column_major>;
        add("int8 " + s.text() + ", B transposed",
            {"cuBLAS",
             [&](cudaStream_t stream, int) { peer.multiply_integers(stream, a.data(), b.data(), theirs.data(), s); }},
            {"Imbrex, sm_80 class", [&](cudaStream_t stream, int) {
                 const gemm_problem<std::int8_t, std::int32_t> problem{s.m,        s.n,        s.k,
                                                                       {a.data()}, {b.data()}, {ours.data()}};
                 launch_ampere<kernel, matrix_layout::column_major>(stream, problem);
             }});
        if (ours.download() != theirs.download()) std::printf("WRONG: int8 differs from the peer\n");
    }
    return table;
}

// Weights as a model stores them ([N, K]). Each contestant rotates over its own copies, which exceed the caches, so
// that none profits from data that another left there.
report small_m(blas& peer) {
    report table("bf16, small M, B transposed, caches cold", "TB/s");
    const int copies = 8;
    std::vector<device_array<bf16>> b;
    for (int i = 0; i < 3 * copies; ++i) b.emplace_back(std::size_t{8192} * 8192, 2);  // the same values
    for (const sizes& s : {sizes{1, 8192, 8192}, sizes{16, 8192, 8192}, sizes{128, 8192, 8192}, sizes{4, 8192, 8192},
                           sizes{32, 8192, 8192}, sizes{64, 8192, 8192}, sizes{100, 8192, 8192}, sizes{16, 4096, 14336},
                           sizes{16, 14336, 4096}, sizes{128, 14336, 4096}}) {
        const device_array<bf16> a(std::size_t(s.m) * s.k, 1);
        device_array<bf16> ours(std::size_t(s.m) * s.n), theirs(std::size_t(s.m) * s.n);
        ours.poison();
        using product = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major}>;
        using early_product =
            gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major, .prefetch = pdl_prefetch::weights}>;
        gemm_problem<bf16, bf16> problem{s.m, s.n, s.k, {a.data()}, {b[0].data()}, {ours.data()}};
        const auto times = take_turns({{"cuBLAS",
                                        [&](cudaStream_t stream, int copy) {
                                            peer.multiply(stream, a.data(), matrix_layout::row_major, b[copy].data(),
                                                          matrix_layout::column_major, theirs.data(), s);
                                        }},
                                       {"Imbrex",
                                        [&](cudaStream_t stream, int copy) {
                                            problem.b = {b[copies + copy].data()};
                                            product::launch(world::device, problem, {}, stream);
                                        }},
                                       {"Imbrex, PDL prefetch",
                                        [&](cudaStream_t stream, int copy) {
                                            problem.b = {b[2 * copies + copy].data()};
                                            early_product::launch(world::device, problem, {}, stream);
                                        }}},
                                      40, copies);
        warn_unless_close(s.text(), ours, theirs);
        const double bytes = 2.0 * (1.0 * s.m * s.k + 1.0 * s.k * s.n + 1.0 * s.m * s.n);
        table.add(s.text(), {{"cuBLAS", bytes / times[0] * 1e-9},
                             {"Imbrex", bytes / times[1] * 1e-9},
                             {"Imbrex, PDL prefetch", bytes / times[2] * 1e-9}});
    }
    table.note("clocks: " + clocks());
    return table;
}

// RMS error relative to the product in double.
report accuracy(blas& peer) {
    report table("relative error against float64, in units of 1e-6", "1e-6");
    for (const sizes& s : {sizes{1024, 1024, 1024}, sizes{1024, 1024, 16384}}) {
        const device_array<bf16> a(std::size_t(s.m) * s.k, 1), b(std::size_t(s.k) * s.n, 2);
        device_array<bf16> ours(std::size_t(s.m) * s.n), theirs(std::size_t(s.m) * s.n);
        const auto widened = [](const device_array<bf16>& from) {
            const std::vector<bf16> values = from.download();
            std::vector<double> wide(values.size());
            for (std::size_t i = 0; i < values.size(); ++i) wide[i] = static_cast<float>(values[i]);
            device_array<double> there(wide.size());
            check(cudaMemcpy(there.data(), wide.data(), there.bytes(), cudaMemcpyHostToDevice), "copy");
            return there;
        };
        const device_array<double> wide_a = widened(a), wide_b = widened(b);
        const device_array<double> right(std::size_t(s.m) * s.n);
        peer.multiply_exactly(wide_a.data(), wide_b.data(), right.data(), s);
        peer.multiply(nullptr, a.data(), matrix_layout::row_major, b.data(), matrix_layout::row_major, theirs.data(),
                      s);
        gemm<bf16, bf16>::launch(world::device, {s.m, s.n, s.k, {a.data()}, {b.data()}, {ours.data()}});
        check(cudaDeviceSynchronize(), "accuracy");
        const std::vector<double> expected = right.download();
        const auto error = [&](const device_array<bf16>& result) {
            const std::vector<bf16> values = result.download();
            double difference = 0, size = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                difference += std::pow(static_cast<float>(values[i]) - expected[i], 2);
                size += expected[i] * expected[i];
            }
            return std::sqrt(difference / size) * 1e6;
        };
        table.add(s.text(), {{"cuBLAS", error(theirs)}, {"Imbrex", error(ours)}});
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
    for (const pace how : {pace::sustained, pace::paused}) {
        if (wanted(count, words, "dense")) tables.push_back(dense(peer, how));
    }
    if (wanted(count, words, "layouts")) tables.push_back(layouts(peer));
    for (const pace how : {pace::sustained, pace::paused}) {
        if (wanted(count, words, "ampere_class")) tables.push_back(ampere_class(peer, how));
    }
    if (wanted(count, words, "small_m")) tables.push_back(small_m(peer));
    if (wanted(count, words, "accuracy")) tables.push_back(accuracy(peer));
    return publish(tables, json_file(count, words)) ? 0 : 1;
}
