// The library imbrex::kernels from a file that only the host compiler sees: problems and errors are the templates' own, and on a GPU the
// results are those of float64.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/precompiled.hpp>

#include <cuda_runtime_api.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;

namespace {

template <class T>
class device_vector {
  public:
    explicit device_vector(const std::vector<T>& values) : count_(values.size()) {
        REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data_), count_ * sizeof(T)) == cudaSuccess);
        REQUIRE(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    }
    ~device_vector() { cudaFree(data_); }
    T* data() const { return data_; }
    std::vector<T> values() const {
        std::vector<T> all(count_);
        REQUIRE(cudaMemcpy(all.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
        return all;
    }

  private:
    std::size_t count_;
    T* data_ = nullptr;
};

std::vector<bf16> random_values(std::size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<bf16> values(count);
    for (bf16& one : values) one = convert<bf16>(normal(generator));
    return values;
}

bool has_device() {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

}  // namespace

TEST_CASE("invalid problems throw the library's errors") {
    attention_problem<bf16> p{};
    p.scale = -1.0f;
    CHECK_THROWS_AS(precompiled::attention(p, precompiled::mask_kind::full), invalid_argument);
    CHECK_THROWS_AS(precompiled::gemm({-1, 1, 1, {}, {}, {}}), invalid_argument);
    CHECK_THROWS_AS(precompiled::paged_decode(p, nullptr), invalid_argument);
}

TEST_CASE("attention and GEMM equal float64 on a GPU") {
    if (!has_device()) {
        MESSAGE("skipped: there is no GPU");
        return;
    }
    constexpr int rows = 96, head_dim = 64;
    const auto a = random_values(rows * head_dim, 1), b = random_values(rows * head_dim, 2),
               c = random_values(rows * head_dim, 3);
    const device_vector<bf16> q(a), k(b), v(c), out(random_values(rows * head_dim, 4)),
        d(random_values(rows * rows, 5));
    const auto view = [](auto* pointer) { return batch_sequence_head(pointer, 1, rows, 1, head_dim); };
    precompiled::attention({.q = view(static_cast<const bf16*>(q.data())),
                            .k = view(static_cast<const bf16*>(k.data())),
                            .v = view(static_cast<const bf16*>(v.data())),
                            .out = view(out.data())},
                           precompiled::mask_kind::causal);
    precompiled::gemm({rows, rows, head_dim, {q.data()}, {k.data()}, {d.data()}});
    const auto found = out.values(), product = d.values();
    double worst_attention = 0, worst_gemm = 0;
    for (int i = 0; i < rows; ++i) {
        std::vector<double> p(rows), o(head_dim);
        double sum = 0;
        for (int j = 0; j < rows; ++j) {
            double score = 0;
            for (int x = 0; x < head_dim; ++x) {
                score += double{convert<float>(a[i * head_dim + x])} * convert<float>(b[j * head_dim + x]);
            }
            worst_gemm =
                std::max(worst_gemm, std::fabs(convert<float>(product[i * rows + j]) - score) / (1 + std::fabs(score)));
            p[j] = j <= i ? std::exp(score / std::sqrt(double{head_dim})) : 0.0;
            sum += p[j];
        }
        for (int x = 0; x < head_dim; ++x) {
            for (int j = 0; j < rows; ++j) o[x] += p[j] / sum * convert<float>(c[j * head_dim + x]);
            worst_attention = std::max(worst_attention, std::fabs(convert<float>(found[i * head_dim + x]) - o[x]));
        }
    }
    CHECK(worst_gemm < 0.005);
    CHECK(worst_attention < 0.03);
}
