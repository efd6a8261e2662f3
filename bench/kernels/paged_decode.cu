// Decode over a paged KV cache: one new token per sequence, GQA with 32 heads and 8 kv_heads, head_dim 128, bf16; pages
// of 16 and 64 rows in random order, rotating over copies that exceed the caches; CUDA graphs of many launches,
// medians. Bytes count K and V. The launch gets the number of keys.
//
//   decode     batches of equal lengths, and one long sequence with many short ones
//   8bit       the same over e4m3 and int8 caches, against bf16
//   cascade    64 sequences with a shared prefix of 16,384 keys and 256 of their own: the prefix read once for all, or
//              per sequence
//   session    a step of one growing sequence
//
//     bench_kernels_paged_decode_device [decode] [8bit] [cascade] [session] [--json FILE]      all, or those named
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/decode_session.hpp>
#include <imbrex/kernels/paged_cascade.hpp>
#include <imbrex/kernels/paged_decode.hpp>

#include "device.hpp"
#include "report.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

using namespace imbrex;
using namespace bench;

namespace {

constexpr int heads = 32, kv_heads = 8, head_dim = 128;
using decode = paged_decode<bf16, decode_config{.head_dims = {head_dim}}, causal_mask>;
using cascade = paged_cascade<bf16, head_dim_set{head_dim}, causal_mask>;

// A pool of K and V rows of all heads, from which benchmarks take their pages. 8-bit elements are normally distributed
// values times a scale.
template <class T>
struct rows_of_cache {
    static constexpr float scale = sizeof(T) == 1 ? 1.0f / 32 : 1.0f;
    std::size_t rows;
    T* k;
    T* v;

    explicit rows_of_cache(std::size_t rows) : rows(rows), k(fill(1)), v(fill(2)) {}
    ~rows_of_cache() {
        cudaFree(k);
        cudaFree(v);
    }

  private:
    // Normally distributed values, repeated after a few million.
    T* fill(unsigned seed) const {
        const std::size_t count = rows * kv_heads * head_dim;
        T* all = nullptr;
        check(cudaMalloc(&all, count * sizeof(T)), "cudaMalloc");
        std::size_t done = std::min<std::size_t>(count, std::size_t{1} << 22);
        std::vector<T> values(done);
        std::mt19937 generator(seed);
        std::normal_distribution<float> number;
        for (T& value : values) value = convert<T>(number(generator) / scale);
        check(cudaMemcpy(all, values.data(), done * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
        for (; done < count; done += std::min(done, count - done)) {
            check(cudaMemcpy(all + done, all, std::min(done, count - done) * sizeof(T), cudaMemcpyDeviceToDevice),
                  "cudaMemcpy");
        }
        return all;
    }
};
using row_pool = rows_of_cache<bf16>;

// A batch with one block table per copy; copies use different pages as long as there are enough.
class batch {
  public:
    batch(const row_pool& from, const std::vector<int>& lengths, int page_size)
        : from_(from),
          page_rows_(page_size),
          width_((*std::max_element(lengths.begin(), lengths.end()) + page_size - 1) / page_size),
          lengths_(lengths.size()),
          q_(lengths.size() * heads * head_dim, 3),
          out_(lengths.size() * heads * head_dim) {
        std::int64_t pages = 0;
        for (const int length : lengths) {
            keys += length;
            pages += (length + page_size - 1) / page_size;
        }
        bytes = 2.0 * static_cast<double>(keys) * kv_heads * head_dim * sizeof(bf16);
        copies = static_cast<int>(std::clamp(4e8 / bytes + 1, 1.0, 64.0));
        check(cudaMemcpy(lengths_.data(), lengths.data(), lengths_.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
        std::vector<int> order(std::min<std::size_t>(from.rows / page_size, static_cast<std::size_t>(pages) * copies));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(4));
        std::size_t next = 0;
        for (int copy = 0; copy < copies; ++copy) {
            std::vector<int> table(lengths.size() * width_);
            for (std::size_t i = 0; i < lengths.size(); ++i) {
                for (int page = 0; page < (lengths[i] + page_size - 1) / page_size; ++page) {
                    table[i * width_ + page] = order[next++ % order.size()];
                }
            }
            tables_.emplace_back(table.size());
            check(cudaMemcpy(tables_.back().data(), table.data(), tables_.back().bytes(), cudaMemcpyHostToDevice),
                  "cudaMemcpy");
        }
    }

    attention_problem<bf16> problem(int copy) const { return problem(from_, copy); }
    // The same over another cache with the same number of rows.
    template <class T>
    attention_problem<bf16, attention_output_mode::normalised, T> problem(const rows_of_cache<T>& from,
                                                                          int copy) const {
        const auto sequences = static_cast<std::int64_t>(lengths_.bytes() / sizeof(int));
        const std::int64_t pages = static_cast<std::int64_t>(from.rows) / page_rows_;
        attention_problem<bf16, attention_output_mode::normalised, T> p;
        p.q = batch_sequence_head<const bf16>(q_.data(), sequences, 1, heads, head_dim);
        p.k = batch_sequence_head<const T>(from.k, pages, page_rows_, kv_heads, head_dim);
        p.v = batch_sequence_head<const T>(from.v, pages, page_rows_, kv_heads, head_dim);
        p.out = batch_sequence_head(out_.data(), sequences, 1, heads, head_dim);
        p.seqused_k = lengths_.data();
        p.paged_kv = {tables_[copy % copies].data(), width_};
        return p;
    }

    std::int64_t keys = 0;
    double bytes;
    int copies;

  private:
    const row_pool& from_;
    int page_rows_;
    int width_;
    device_array<int> lengths_;
    device_array<bf16> q_, out_;
    std::vector<device_array<int>> tables_;
};

contestant decode_of(std::string name, const batch& one, const device_array<int>& workspace, bool early) {
    return {std::move(name), [&one, &workspace, early](cudaStream_t stream, int copy) {
                decode_options options;
                options.workspace = workspace.data();
                options.pdl_prefetch = early;
                options.total_seqlen_k = one.keys;
                decode::launch(world::device, one.problem(copy), options, {}, {}, stream);
            }};
}

// The same over an 8-bit cache.
template <class T>
contestant decode_of(std::string name, const batch& one, const rows_of_cache<T>& from, const kv_cache_scales& scales,
                     const device_array<int>& workspace) {
    return {std::move(name), [&one, &from, &workspace, scales](cudaStream_t stream, int copy) {
                using kind =
                    paged_decode<bf16, decode_config{.head_dims = {head_dim}}, causal_mask, score_mod::identity, T>;
                decode_options options;
                options.workspace = workspace.data();
                auto problem = one.problem(from, copy);
                problem.k_scales = problem.v_scales = scales;
                kind::launch(world::device, problem, options, {}, {}, stream);
            }};
}

// Sequences with a shared prefix. Block tables list its pages, then the sequence's own, for decode; the cascade takes
// the two parts. Each copy has its own pages.
class family {
  public:
    static constexpr int sequences = 64, prefix_keys = 16384, own_keys = 256, copies = 4;

    family(const row_pool& from, int page_size)
        : from_(from),
          page_rows_(page_size),
          prefix_width_(prefix_keys / page_size),
          own_width_(own_keys / page_size),
          q_(sequences * heads * head_dim, 3),
          out_(sequences * heads * head_dim),
          all_lengths_(std::vector<int>(sequences, prefix_keys + own_keys)),
          own_lengths_(std::vector<int>(sequences, own_keys)) {
        std::vector<int> order(from.rows / page_size);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(5));
        auto next = order.begin();
        for (int copy = 0; copy < copies; ++copy) {
            const std::vector<int> prefix(next, next + prefix_width_);
            next += prefix_width_;
            std::vector<int> own(next, next + sequences * own_width_), all;
            next += sequences * own_width_;
            for (int i = 0; i < sequences; ++i) {
                all.insert(all.end(), prefix.begin(), prefix.end());
                all.insert(all.end(), own.begin() + i * own_width_, own.begin() + (i + 1) * own_width_);
            }
            prefixes_.emplace_back(prefix);
            owns_.emplace_back(own);
            alls_.emplace_back(all);
        }
        workspace_ = std::make_unique<numbers>(
            std::vector<int>(cascade::workspace_bytes(world::device, own(0), prefix(0)) / sizeof(int) + 1, 0));
    }

    attention_problem<bf16> whole(int copy) const {
        return problem(all_lengths_, alls_[copy % copies], prefix_width_ + own_width_);
    }
    attention_problem<bf16> own(int copy) const { return problem(own_lengths_, owns_[copy % copies], own_width_); }
    shared_prefix prefix(int copy) const { return {{prefixes_[copy % copies].data(), prefix_width_}, nullptr}; }
    void* workspace() const { return workspace_->data(); }

    // K and V bytes read by the SMs according to the plan: a work item has 16 rows of queries, or 64 if there are more,
    // and reads all of its keys.
    static double bytes(bool cascaded) {
        constexpr double row = 2.0 * kv_heads * head_dim * sizeof(bf16);
        constexpr int in_prefix = sequences * heads / kv_heads;
        return row * (cascaded ? (in_prefix + 63) / 64 * prefix_keys + sequences * own_keys
                               : sequences * (prefix_keys + own_keys));
    }
    // Distinct K and V bytes.
    static double distinct_bytes() {
        return 2.0 * kv_heads * head_dim * sizeof(bf16) * (prefix_keys + sequences * own_keys);
    }

  private:
    struct numbers : device_array<int> {
        explicit numbers(const std::vector<int>& values) : device_array<int>(values.size()) {
            check(cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
        }
    };
    attention_problem<bf16> problem(const numbers& lengths, const numbers& table, int width) const {
        const std::int64_t pages = static_cast<std::int64_t>(from_.rows) / page_rows_;
        attention_problem<bf16> p;
        p.q = batch_sequence_head<const bf16>(q_.data(), sequences, 1, heads, head_dim);
        p.k = batch_sequence_head<const bf16>(from_.k, pages, page_rows_, kv_heads, head_dim);
        p.v = batch_sequence_head<const bf16>(from_.v, pages, page_rows_, kv_heads, head_dim);
        p.out = batch_sequence_head(out_.data(), sequences, 1, heads, head_dim);
        p.seqused_k = lengths.data();
        p.paged_kv = {table.data(), width};
        return p;
    }

    const row_pool& from_;
    int page_rows_, prefix_width_, own_width_;
    device_array<bf16> q_, out_;
    numbers all_lengths_, own_lengths_;
    std::vector<numbers> prefixes_, owns_, alls_;
    std::unique_ptr<numbers> workspace_;
};

void measure_decode(std::vector<report>& all) {
    report times("decode over a paged KV cache, caches cold", "microseconds");
    report rates("decode over a paged KV cache, caches cold", "GB/s of K and V");
    const row_pool rows(std::size_t{128} * 64 * 1024);
    device_array<int> workspace(std::size_t{8} << 20);
    check(cudaMemset(workspace.data(), 0, workspace.bytes()), "cudaMemset");
    const auto measure = [&](const std::string& name, const std::vector<int>& lengths) {
        const batch of_16(rows, lengths, 16), of_64(rows, lengths, 64);
        const double guess = of_16.bytes / 4e12 + 8e-6;
        const int repeats = static_cast<int>(std::clamp(3e-3 / guess, 3.0, 200.0));
        const auto found = take_turns(
            {decode_of("pages of 16", of_16, workspace, false), decode_of("pages of 64", of_64, workspace, false),
             decode_of("pages of 16, PDL prefetch", of_16, workspace, true),
             decode_of("pages of 64, PDL prefetch", of_64, workspace, true)},
            12, repeats);
        std::vector<report::value> microseconds, bandwidths;
        const char* names[] = {"pages of 16", "pages of 64", "pages of 16, PDL prefetch", "pages of 64, PDL prefetch"};
        for (int i = 0; i < 4; ++i) {
            microseconds.push_back({names[i], found[i] * 1e3});
            bandwidths.push_back({names[i], of_16.bytes / found[i] * 1e-6});
        }
        times.add(name, microseconds);
        rates.add(name, bandwidths);
    };
    for (const int batches : {1, 8, 32, 128}) {
        for (const int context : {1024, 4096, 16384, 65536}) {
            measure(std::to_string(batches) + " x " + std::to_string(context), std::vector<int>(batches, context));
        }
    }
    std::vector<int> ragged(64, 200);
    ragged[20] = 131072;
    measure("131072 and 63 x 200", ragged);
    measure("64 x 2245", std::vector<int>(64, (131072 + 63 * 200) / 64));
    times.note("clocks: " + clocks());
    all.push_back(times);
    all.push_back(rates);
}

void measure_eight_bits(std::vector<report>& all) {
    report times("decode over an 8-bit KV cache, caches cold", "microseconds");
    report rates("decode over an 8-bit KV cache, speed-up over bf16", "bf16 time / time");
    const std::size_t count = std::size_t{128} * 64 * 1024;
    const rows_of_cache<bf16> wide(count);
    const rows_of_cache<e4m3> floats(count);
    const rows_of_cache<std::int8_t> numbers(count);
    device_array<int> workspace(std::size_t{8} << 20);
    check(cudaMemset(workspace.data(), 0, workspace.bytes()), "cudaMemset");
    const std::vector<float> scale(count / 16 * kv_heads, floats.scale);
    device_array<float> scales(scale.size());
    check(cudaMemcpy(scales.data(), scale.data(), scales.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
    const kv_cache_scales of_heads = kv_scales_per_head(scales.data()),
                          of_pages = kv_scales_per_page(scales.data(), kv_heads);
    const auto measure = [&](const std::string& name, const std::vector<int>& lengths) {
        std::vector<report::value> microseconds, shares;
        for (const int page_size : {16, 64}) {
            const batch one(wide, lengths, page_size);
            const int repeats = static_cast<int>(std::clamp(3e-3 / (one.bytes / 4e12 + 8e-6), 3.0, 200.0));
            const std::vector<contestant> all_of_them{
                decode_of("bf16", one, workspace, false), decode_of("e4m3", one, floats, of_heads, workspace),
                decode_of("int8", one, numbers, of_heads, workspace),
                decode_of("e4m3, per-page scales", one, floats, of_pages, workspace)};
            const auto found = take_turns(all_of_them, 12, repeats);
            for (std::size_t i = 0; i < found.size(); ++i) {
                const std::string title = all_of_them[i].name + ", pages of " + std::to_string(page_size);
                microseconds.push_back({title, found[i] * 1e3});
                if (i > 0) shares.push_back({title, found[0] / found[i]});
            }
        }
        times.add(name, microseconds);
        rates.add(name, shares);
    };
    for (const int batches : {1, 8, 32, 128}) {
        for (const int context : {1024, 4096, 16384, 65536}) {
            measure(std::to_string(batches) + " x " + std::to_string(context), std::vector<int>(batches, context));
        }
    }
    times.note("clocks: " + clocks());
    all.push_back(times);
    all.push_back(rates);
}

void measure_cascade(std::vector<report>& all) {
    report times("64 sequences with a shared prefix of 16384 keys and 256 of their own, caches cold", "microseconds");
    const row_pool rows(std::size_t{family::copies} * (family::prefix_keys + family::sequences * family::own_keys));
    device_array<int> workspace(std::size_t{8} << 20);
    check(cudaMemset(workspace.data(), 0, workspace.bytes()), "cudaMemset");
    for (const int page_size : {16, 64}) {
        const family one(rows, page_size);
        const contestant each{"no cascade", [&](cudaStream_t stream, int copy) {
                                  decode_options options;
                                  options.workspace = workspace.data();
                                  decode::launch(world::device, one.whole(copy), options, {}, {}, stream);
                              }};
        const contestant together{"cascade", [&](cudaStream_t stream, int copy) {
                                      cascade_options options;
                                      options.workspace = one.workspace();
                                      cascade::launch(world::device, one.own(copy), one.prefix(copy), options, {}, {},
                                                      stream);
                                  }};
        const auto found = take_turns({each, together}, 12, 8);
        times.add("pages of " + std::to_string(page_size),
                  {{each.name, found[0] * 1e3}, {together.name, found[1] * 1e3}});
    }
    times.note("clocks: " + clocks());
    report traffic("cascade: K and V traffic", "MB");
    traffic.add("K and V read, by the plan",
                {{"no cascade", family::bytes(false) * 1e-6}, {"cascade", family::bytes(true) * 1e-6}});
    traffic.add("distinct K and V",
                {{"no cascade", family::distinct_bytes() * 1e-6}, {"cascade", family::distinct_bytes() * 1e-6}});
    all.push_back(times);
    all.push_back(traffic);
}

// The sequence grows by one token per step, also in a CUDA graph; compared with a decode at the initial length.
void measure_session(std::vector<report>& all) {
    report times("decode session step at batch 1, warm cache", "microseconds");
    const row_pool rows(std::size_t{1} << 16);
    device_array<int> workspace(std::size_t{8} << 20);
    check(cudaMemset(workspace.data(), 0, workspace.bytes()), "cudaMemset");
    const device_array<bf16> q(heads * head_dim, 6), out(heads * head_dim);
    for (const int context : {1024, 16384}) {
        const batch one(rows, {context}, 64);
        using session = decode_session<bf16, head_dim_set{head_dim}, causal_mask>;
        const decode_session_configuration given{.heads = heads,
                                                 .kv_heads = kv_heads,
                                                 .head_dim = head_dim,
                                                 .capacity = context + 4096,
                                                 .rope = rope_frequencies{.theta = 500000, .rotary_dim = head_dim}};
        session by_step(world::device, given), by_parts(world::device, given);
        by_step.append(rows.k, rows.v, context);
        by_parts.append(rows.k, rows.v, context);
        const contestant bare{"decode only", [&](cudaStream_t stream, int) {
                                  decode_options options;
                                  options.workspace = workspace.data();
                                  decode::launch(world::device, one.problem(0), options, {}, {}, stream);
                              }};
        const contestant step{
            "step", [&](cudaStream_t stream, int) { by_step.step(q.data(), rows.k, rows.v, out.data(), 1, stream); }};
        const contestant parts{"append and decode", [&](cudaStream_t stream, int) {
                                   by_parts.append(rows.k, rows.v, 1, stream);
                                   by_parts.decode(q.data(), out.data(), 1, stream);
                               }};
        const auto found = take_turns({bare, step, parts}, 12, 100);
        times.add("1 x " + std::to_string(context),
                  {{bare.name, found[0] * 1e3}, {step.name, found[1] * 1e3}, {parts.name, found[2] * 1e3}});
    }
    all.push_back(times);
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    std::vector<report> all;
    if (wanted(count, words, "decode")) measure_decode(all);
    if (wanted(count, words, "8bit")) measure_eight_bits(all);
    if (wanted(count, words, "cascade")) measure_cascade(all);
    if (wanted(count, words, "session")) measure_session(all);
    return publish(all, json_file(count, words)) ? 0 : 1;
}
