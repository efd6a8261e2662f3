// The error of attention_fp8 on data with outliers, by the way in which quantise_fp8 has quantised Q, K and V: one scale
// per tensor, scales per head or block, with and without a rotation of Q and K. The data are those of FlashAttention-3's
// experiment: N(0, 1), and 0.1% of the entries N(0, 1) + N(0, 100). Errors are root mean squares against attention in
// double on the 16-bit inputs. Further rows round only some of the operands, in double otherwise. Runs on the device if
// there is one, otherwise in the host world (some minutes), and prints the results; with --json FILE it writes them as
// tables for docs/results/render_tables.py, too.
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/attention_fp8.hpp>
#include <imbrex/kernels/quantise_fp8.hpp>

#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace imbrex;

namespace {

constexpr int all_keys[] = {2048, 8192};
constexpr int heads = 4, queries = 1024, head_dim = 128, query_block = 64, key_block = 128;

using numbers = std::vector<float>;  // [row, head, head_dim]

int rows_of(const numbers& values) {
    return static_cast<int>(values.size()) / heads / head_dim;
}

template <class T>
numbers as_numbers(const std::vector<T>& values) {
    numbers result(values.size());
    std::transform(values.begin(), values.end(), result.begin(), [](T value) { return convert<float>(value); });
    return result;
}
template <class T>
std::vector<T> rounded(const numbers& values) {
    std::vector<T> result(values.size());
    std::transform(values.begin(), values.end(), result.begin(), [](float value) { return convert<T>(value); });
    return result;
}

numbers with_outliers(int rows, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::bernoulli_distribution rare(0.001);
    numbers values(std::size_t(rows) * heads * head_dim);
    for (float& value : values) {
        value = normal(generator);
        if (rare(generator)) value += 10 * normal(generator);
    }
    return as_numbers(rounded<bf16>(values));
}

void in_threads(int count, const std::function<void(int)>& work) {
    const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    std::vector<std::thread> all;
    for (int first = 0; first < threads; ++first) {
        all.emplace_back([=, &work] {
            for (int i = first; i < count; i += threads) work(i);
        });
    }
    for (std::thread& one : all) one.join();
}

// [head, column, row]
std::vector<double> columns_of(const numbers& values) {
    const std::size_t rows = rows_of(values);
    std::vector<double> result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        result[i % (heads * head_dim) * rows + i / (heads * head_dim)] = values[i];
    return result;
}

// Attention in double. Optionally P is rounded to e4m3 as in attention_fp8, and its sum is not.
numbers attention_in_double(const numbers& q, const numbers& k, const numbers& v, bool round_p = false) {
    const std::size_t keys = rows_of(k);
    const std::vector<double> k_columns = columns_of(k), v_columns = columns_of(v);
    numbers out(q.size());
    in_threads(static_cast<int>(q.size()) / head_dim, [&](int number) {
        const std::size_t head = number % heads;
        std::vector<double> p(keys);
        for (int i = 0; i < head_dim; ++i) {
            const double x = q[std::size_t(number) * head_dim + i] / std::sqrt(double(head_dim));
            const double* const column = &k_columns[(head * head_dim + i) * keys];
            for (std::size_t key = 0; key < keys; ++key) p[key] += x * column[key];
        }
        const double most = *std::max_element(p.begin(), p.end());
        double total = 0;
        for (double& weight : p) {
            weight = std::exp(weight - most);
            total += weight;
            if (round_p) weight = float(e4m3(static_cast<float>(256 * weight))) / 256.0;
        }
        for (int i = 0; i < head_dim; ++i) {
            const double* const column = &v_columns[(head * head_dim + i) * keys];
            double sums[8] = {};
            for (std::size_t key = 0; key < keys; ++key) sums[key % 8] += p[key] * column[key];
            const double sum = std::accumulate(std::begin(sums), std::end(sums), 0.0);
            out[std::size_t(number) * head_dim + i] = static_cast<float>(sum / total);
        }
    });
    return out;
}

template <class T>
auto view(T* values, int rows) {
    return batch_sequence_head(values, 1, rows, heads, head_dim);
}

template <class T>
numbers attention_in_16_bits(world where, const numbers& q, const numbers& k, const numbers& v) {
    const int keys = rows_of(k);
    world_array<T> q16(where, q.size()), k16(where, k.size()), v16(where, v.size()), out(where, q.size());
    q16.values = rounded<T>(q), k16.values = rounded<T>(k), v16.values = rounded<T>(v);
    attention_forward<T, attention_options{.head_dims = {head_dim}}>::launch(where,
                                                                             {.q = view<const T>(q16.upload(), queries),
                                                                              .k = view<const T>(k16.upload(), keys),
                                                                              .v = view<const T>(v16.upload(), keys),
                                                                              .out = view(out.upload(), queries)});
    out.download();
    return as_numbers(out.values);
}

enum class granularity { tensor, head, block };

// A tensor in e4m3, in the memory of a world.
struct quantised {
    quantised(world where, const numbers& given, granularity kind, int block_rows, std::optional<std::uint64_t> seed)
        : rows(rows_of(given)),
          x(where, given.size()),
          out(where, given.size()),
          scales(where, heads * (rows / block_rows)),
          workspace(where, 1 << 16) {
        x.values = rounded<fp16>(given);
        problem.x = view<const fp16>(x.upload(), rows);
        problem.out = view(out.upload(), rows);
        float* const at = scales.upload();
        problem.scales = kind == granularity::tensor ? fp8_scale_per_tensor(at)
                         : kind == granularity::head ? fp8_scales_per_head(at, heads)
                                                     : fp8_scales_per_block(at, heads, rows / block_rows, block_rows);
        problem.hadamard_seed = seed;
        problem.workspace = workspace.upload();
        quantise_fp8<fp16>::launch(where, problem);
        out.download();
        scales.download();
    }

    // What attention_fp8 reads, in the rotated basis.
    numbers values() const {
        numbers result(out.values.size());
        const fp8_scales& given = problem.scales;
        for (std::size_t i = 0; i < result.size(); ++i) {
            const int row = static_cast<int>(i / head_dim / heads), head = static_cast<int>(i / head_dim) % heads;
            const std::size_t scale = head * given.head_stride + (given.block_rows == 0 ? 0 : row / given.block_rows);
            result[i] = scales.values[scale] * float(out.values[i]);
        }
        return result;
    }

    int rows;
    world_array<fp16> x;
    world_array<e4m3> out;
    world_array<float> scales;
    world_array<unsigned> workspace;
    quantise_fp8_problem<fp16> problem;
};

struct quantised_inputs {
    quantised q, k, v;

    quantised_inputs(world where, const numbers& q_in, const numbers& k_in, const numbers& v_in, granularity kind,
                     bool rotated)
        : q(where, q_in, kind, query_block, rotated ? std::optional<std::uint64_t>(1) : std::nullopt),
          k(where, k_in, kind, key_block, rotated ? std::optional<std::uint64_t>(1) : std::nullopt),
          v(where, v_in, kind, key_block, std::nullopt) {}

    template <class Scaling>
    numbers attention(world where) const {
        world_array<fp16> out(where, q.x.values.size());
        attention_fp8<fp16, attention_fp8_options{.head_dims = {head_dim}}, full_mask, Scaling>::launch(
            where, {.q = q.problem.out,
                    .k = k.problem.out,
                    .v = v.problem.out,
                    .out = view(out.upload(), q.rows),
                    .q_descale = q.problem.scales.view(),
                    .k_descale = k.problem.scales.view(),
                    .v_descale = v.problem.scales.view()});
        out.download();
        return as_numbers(out.values);
    }
    numbers attention(world where, granularity kind) const {
        if (kind == granularity::tensor) return attention<fp8_scaling::per_tensor>(where);
        if (kind == granularity::head) return attention<fp8_scaling::per_head>(where);
        return attention<fp8_scaling::per_block<query_block, key_block>>(where);
    }
};

// The errors of all lengths, in the order of the first one.
class tables {
  public:
    struct row {
        std::string name;
        std::vector<double> errors;  // of each number of keys
    };

    void add(std::vector<row>& rows, const std::string& name, const numbers& found, const numbers& right) {
        double sum = 0;
        for (std::size_t i = 0; i < found.size(); ++i) sum += std::pow(double(found[i]) - right[i], 2);
        auto one = std::find_if(rows.begin(), rows.end(), [&](const row& each) { return each.name == name; });
        if (one == rows.end()) one = rows.insert(rows.end(), {name, {}});
        one->errors.push_back(std::sqrt(sum / static_cast<double>(found.size())));
        std::printf("%-75s %.2e\n", name.c_str(), one->errors.back());
        std::fflush(stdout);
    }
    bool write(const std::string& file, const std::string& environment) const {
        std::FILE* const out = std::fopen(file.c_str(), "w");
        if (out == nullptr) return false;
        std::fprintf(out, "{\n  \"environment\": \"%s\",\n  \"tables\": {\n", environment.c_str());
        write_rows(out, "attention", "attention", attention);
        std::fprintf(out, ",\n");
        write_rows(out, "contributions", "rounded to e4m3, the rest in float64", contributions);
        std::fprintf(out, "\n  }\n}\n");
        return std::fclose(out) == 0;
    }

    std::vector<row> attention, contributions;
    std::string baseline;

  private:
    void write_rows(std::FILE* out, const char* name, const char* title, const std::vector<row>& rows) const {
        const auto naive =
            std::find_if(attention.begin(), attention.end(), [&](const row& r) { return r.name == baseline; });
        std::fprintf(out, "    \"%s\": {\n      \"columns\": [\"%s\"", name, title);
        for (const int keys : all_keys) std::fprintf(out, ", \"%d keys\"", keys);
        std::fprintf(out, "],\n      \"rows\": [");
        for (const row& one : rows) {
            std::fprintf(out, "%s\n        [\"%s\"", &one == &rows.front() ? "" : ",", one.name.c_str());
            for (std::size_t i = 0; i < one.errors.size(); ++i) {
                std::fprintf(out, ", \"%.2e (%.2fx)\"", one.errors[i], naive->errors[i] / one.errors[i]);
            }
            std::fprintf(out, "]");
        }
        std::fprintf(out, "\n      ]\n    }");
    }
};

std::string name_of(granularity kind) {
    if (kind == granularity::tensor) return "a scale per tensor";
    return kind == granularity::head ? "scales per head" : "scales per block of 64 queries, 128 keys";
}

void measure(world where, int keys, tables& results) {
    const numbers q = with_outliers(queries, 1), k = with_outliers(keys, 2), v = with_outliers(keys, 3);
    const numbers right = attention_in_double(q, k, v);
    const double square = std::inner_product(right.begin(), right.end(), right.begin(), 0.0);
    std::printf("%d keys, world: %s; RMS of the exact output: %.2e\n", keys, imbrex::name_of(where).c_str(),
                std::sqrt(square / static_cast<double>(right.size())));
    const auto whole = [&](const std::string& name, const numbers& found) {
        results.add(results.attention, name, found, right);
    };
    const auto part = [&](const std::string& name, const numbers& found) {
        results.add(results.contributions, name, found, right);
    };
    whole("fp16", attention_in_16_bits<fp16>(where, q, k, v));
    whole("bf16", attention_in_16_bits<bf16>(where, q, k, v));
    results.baseline = "e4m3, " + name_of(granularity::tensor);
    for (const bool rotated : {false, true}) {
        for (const granularity kind : {granularity::tensor, granularity::head, granularity::block}) {
            const quantised_inputs inputs(where, q, k, v, kind, rotated);
            const std::string scales = name_of(kind);
            whole((rotated ? "e4m3, Q and K rotated, " : "e4m3, ") + scales, inputs.attention(where, kind));
            if (kind == granularity::head) continue;
            part((rotated ? "rotated Q and K: " : "Q and K: ") + scales,
                 attention_in_double(inputs.q.values(), inputs.k.values(), v));
            if (!rotated) part("V: " + scales, attention_in_double(q, k, inputs.v.values()));
        }
    }
    part("P", attention_in_double(q, k, v, true));
}

}  // namespace

int main(int count, char** words) {
    const world where = device_available() ? world::device : world::host;
    tables results;
    for (const int keys : all_keys) measure(where, keys, results);
    const std::string file = bench::json_file(count, words);
    const std::string environment = "world: " + imbrex::name_of(where) + "; 4 heads, 1024 queries, head_dim 128";
    return file.empty() || results.write(file, environment) ? 0 : 1;
}
