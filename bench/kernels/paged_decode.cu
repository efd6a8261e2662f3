// Decode over a paged cache: one new token a sequence, 32 heads of queries and 8 of keys, depth 128, bf16; pages of 16 and of 64 rows in
// random order, in so many copies that none is in the caches when its turn comes; graphs of many launches, medians. The bytes are those of keys
// and values. Beside batches of equal lengths, one long sequence beside many short ones. --json FILE writes the tables for
// bench/plot.py.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_decode.hpp>

#include "device.hpp"
#include "report.hpp"

#include <algorithm>
#include <numeric>

using namespace imbrex;
using namespace bench;

namespace {

constexpr int heads = 32, key_heads = 8, depth = 128;
using decode = paged_decode<bf16, causal_mask, plain_score, attention_result::normalised, decode_depths<depth>>;

// So many rows of keys and of values, of all heads, that benchmarks take their pages from.
struct row_pool {
    std::size_t rows;
    bf16* k;
    bf16* v;

    explicit row_pool(std::size_t rows) : rows(rows), k(fill(1)), v(fill(2)) {}
    ~row_pool() {
        cudaFree(k);
        cudaFree(v);
    }

  private:
    // Normal numbers, the first few millions again and again.
    bf16* fill(unsigned seed) const {
        const std::size_t count = rows * key_heads * depth;
        bf16* all = nullptr;
        check(cudaMalloc(&all, count * sizeof(bf16)), "cudaMalloc");
        std::size_t done = std::min<std::size_t>(count, std::size_t{1} << 22);
        std::vector<bf16> values(done);
        std::mt19937 generator(seed);
        std::normal_distribution<float> number;
        for (bf16& value : values) value = convert<bf16>(number(generator));
        check(cudaMemcpy(all, values.data(), done * sizeof(bf16), cudaMemcpyHostToDevice), "cudaMemcpy");
        for (; done < count; done += std::min(done, count - done)) {
            check(cudaMemcpy(all + done, all, std::min(done, count - done) * sizeof(bf16), cudaMemcpyDeviceToDevice),
                  "cudaMemcpy");
        }
        return all;
    }
};

// A batch with its tables, one for each copy, which name different pages as long as there are enough.
class batch {
  public:
    batch(const row_pool& from, const std::vector<int>& lengths, int page_rows)
        : from_(from),
          page_rows_(page_rows),
          width_((*std::max_element(lengths.begin(), lengths.end()) + page_rows - 1) / page_rows),
          lengths_(lengths.size()),
          q_(lengths.size() * heads * depth, 3),
          out_(lengths.size() * heads * depth) {
        std::int64_t keys = 0, pages = 0;
        for (const int length : lengths) {
            keys += length;
            pages += (length + page_rows - 1) / page_rows;
        }
        bytes = 2.0 * static_cast<double>(keys) * key_heads * depth * sizeof(bf16);
        copies = static_cast<int>(std::clamp(4e8 / bytes + 1, 1.0, 64.0));
        check(cudaMemcpy(lengths_.data(), lengths.data(), lengths_.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
        std::vector<int> order(std::min<std::size_t>(from.rows / page_rows, static_cast<std::size_t>(pages) * copies));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(4));
        std::size_t next = 0;
        for (int copy = 0; copy < copies; ++copy) {
            std::vector<int> table(lengths.size() * width_);
            for (std::size_t i = 0; i < lengths.size(); ++i) {
                for (int page = 0; page < (lengths[i] + page_rows - 1) / page_rows; ++page) {
                    table[i * width_ + page] = order[next++ % order.size()];
                }
            }
            tables_.emplace_back(table.size());
            check(cudaMemcpy(tables_.back().data(), table.data(), tables_.back().bytes(), cudaMemcpyHostToDevice),
                  "cudaMemcpy");
        }
    }

    attention_problem<bf16> problem(int copy) const {
        const auto sequences = static_cast<std::int64_t>(lengths_.bytes() / sizeof(int));
        const std::int64_t pages = static_cast<std::int64_t>(from_.rows) / page_rows_;
        attention_problem<bf16> p;
        p.q = batch_sequence_head<const bf16>(q_.data(), sequences, 1, heads, depth);
        p.k = batch_sequence_head<const bf16>(from_.k, pages, page_rows_, key_heads, depth);
        p.v = batch_sequence_head<const bf16>(from_.v, pages, page_rows_, key_heads, depth);
        p.out = batch_sequence_head(out_.data(), sequences, 1, heads, depth);
        p.key_lengths = lengths_.data();
        p.pages = {tables_[copy % copies].data(), width_};
        return p;
    }

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
                options.early = early;
                decode::launch(world::device, one.problem(copy), options, {}, {}, stream);
            }};
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: there is no GPU to measure on\n");
        return 0;
    }
    report times("decode over a paged cache, caches cold", "microseconds");
    report rates("decode over a paged cache, caches cold", "GB/s of keys and values");
    const row_pool rows(std::size_t{128} * 64 * 1024);
    device_array<int> workspace(std::size_t{8} << 20);
    check(cudaMemset(workspace.data(), 0, workspace.bytes()), "cudaMemset");
    const auto measure = [&](const std::string& name, const std::vector<int>& lengths) {
        const batch of_16(rows, lengths, 16), of_64(rows, lengths, 64);
        const double guess = of_16.bytes / 4e12 + 8e-6;
        const int repeats = static_cast<int>(std::clamp(3e-3 / guess, 3.0, 200.0));
        const auto found = take_turns(
            {decode_of("pages of 16", of_16, workspace, false), decode_of("pages of 64", of_64, workspace, false),
             decode_of("pages of 16, early", of_16, workspace, true),
             decode_of("pages of 64, early", of_64, workspace, true)},
            12, repeats);
        std::vector<report::value> microseconds, bandwidths;
        const char* names[] = {"pages of 16", "pages of 64", "pages of 16, early", "pages of 64, early"};
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
    measure("131072 beside 63 x 200", ragged);
    measure("64 x 2245", std::vector<int>(64, (131072 + 63 * 200) / 64));
    times.note("clocks: " + clocks());
    return publish({times, rates}, json_file(count, words)) ? 0 : 1;
}
