// Tests of paged_decode at its limits: 64 tokens per sequence, a thousand sequences, no keys at all; on the device also
// a million keys at the end of a cache of more than 2^31 elements, and a CUDA graph that is replayed with other lengths
// and block tables.
#include <imbrex/hw/world_memory.hpp>

#include "kernels/paged_decode/trial.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

using decode = paged_decode<bf16, decode_config{.head_dims = {128}}, any_mask>;

// Smaller in the host worlds, which are slow.
#if defined(__CUDACC__)
constexpr bool on_device = true;
#else
constexpr bool on_device = false;
#endif

}  // namespace

TEST_CASE("64 causal tokens per sequence") {
    attention_test_case c{
        .batches = 3, .heads = 4, .kv_heads = 2, .seqlen_q = 64, .head_dim_qk = 128, .head_dim_v = 128};
    c.seqlen_k = on_device ? 3000 : 150;
    c.seqused_k = {c.seqlen_k, 64, 70};
    c.right = 0;
    for (const int page_size : {16, 256}) {
        c.page_size = page_size;
        check_decode<decode, bf16>(c, on_device ? std::vector<int>{1, 132} : std::vector<int>{5});
    }
    // Some tokens see nothing: their sequence is shorter than its new tokens.
    c.seqused_k = {c.seqlen_k, 3, 0};
    check_decode<decode, bf16>(c, {on_device ? 132 : 2});
    // The largest q_heads_per_kv_head.
    attention_test_case shared{.batches = 2, .heads = on_device ? 32 : 8, .kv_heads = 1, .seqlen_q = 64};
    shared.seqlen_k = on_device ? 500 : 80;
    shared.seqused_k = {shared.seqlen_k, 65};
    shared.page_size = 16;
    shared.right = 0;
    check_decode<decode, bf16>(shared, {on_device ? 132 : 3});
}

TEST_CASE("1024 sequences of all lengths, and sequences without keys") {
    attention_test_case c{.batches = on_device ? 1024 : 128, .heads = 4, .kv_heads = 1, .seqlen_q = 1};
    c.seqlen_k = on_device ? 700 : 60;
    c.head_dim_qk = c.head_dim_v = on_device ? 128 : 32;
    c.page_size = 32;
    c.right = 0;
    for (int i = 0; i < c.batches; ++i) c.seqused_k.push_back(i * 37 % (c.seqlen_k + 1));
    check_decode<decode, bf16>(c, {on_device ? 132 : 7});

    // Pages, but no keys.
    for (const world where : worlds()) {
        for (const int blocks : {1, 7}) {
            attention_trial<bf16> there(where, c, 1);
            auto problem = there.upload();
            buffer<int> none(where, c.batches, 0);
            problem.seqused_k = none.upload();
            CHECK(decode::choice(where, problem) == decode_kernel_kind::hopper);
            buffer<int> workspace(where, decode::workspace_bytes(where, problem, blocks) / sizeof(int), 0);
            decode_options options;
            options.workspace = workspace.upload();
            options.blocks = blocks;
            decode::launch(where, problem, options, there.mask());
            there.download();
            int wrong = 0;
            there.each_row([&](std::size_t place, std::size_t row) {
                for (int i = 0; i < c.head_dim_v; ++i) wrong += float(there.out.values[place + i]) == 0 ? 0 : 1;
                wrong += there.lse2.values[row] == -INFINITY ? 0 : 1;
            });
            CHECK(wrong == 0);
        }
    }
}

#if defined(__CUDACC__)
namespace {

void require_done(cudaError_t status) {
    imbrex::detail::require_success(status, "device");
}

// One sequence whose pages are the last of a cache, in random order; the rest of the cache is NaN. Most keys have
// little weight and repeat a few rows. Some, among them the first and the last, have the weight of thousands of those,
// and their own values: missing one of them, or reading another row instead, gives a large error.
class long_sequence {
  public:
    static constexpr int head_dim = 128, heads = 2, period = 1009, special = 60;

    long_sequence(int keys, int page_size, std::int64_t elements)
        : keys_(keys),
          page_rows_(page_size),
          width_((keys + page_size - 1) / page_size),
          pages_(elements / (page_size * head_dim)),
          k_(world::device, static_cast<std::size_t>(elements) * sizeof(bf16)),
          v_(world::device, k_.bytes()),
          q_(world::device, heads * head_dim),
          out_(world::device, heads * head_dim, bf16(NAN)),
          log2_sums_(world::device, heads, NAN),
          lengths_(world::device, 1, keys),
          table_(world::device, width_) {
        REQUIRE(pages_ > width_);
        std::iota(table_.values.begin(), table_.values.end(), static_cast<int>(pages_ - width_));
        std::mt19937 random(1);
        std::shuffle(table_.values.begin(), table_.values.end(), random);
        fill_random(q_.values, 2);
        for (int i = 0; i < special; ++i)
            special_.push_back(static_cast<int>(std::int64_t{keys - 1} * i / (special - 1)));
        make_rows();
        require_done(cudaMemset(k_.at(), 0xff, k_.bytes()));
        require_done(cudaMemset(v_.at(), 0xff, v_.bytes()));
        send_rows(k_, rows_of_keys_, special_keys_);
        send_rows(v_, rows_of_values_, special_values_);
    }

    void check() {
        attention_problem<bf16> p;
        p.q = batch_sequence_head<const bf16>(q_.upload(), 1, 1, heads, head_dim);
        p.k = batch_sequence_head<const bf16>(k_.at<bf16>(), pages_, page_rows_, 1, head_dim);
        p.v = batch_sequence_head<const bf16>(v_.at<bf16>(), pages_, page_rows_, 1, head_dim);
        p.out = batch_sequence_head(out_.upload(), 1, 1, heads, head_dim);
        p.lse2 = batch_head_rows(log2_sums_.upload(), heads, 1);
        p.seqused_k = lengths_.upload();
        p.paged_kv = {table_.upload(), width_};
        CHECK(decode::choice(world::device, p) == decode_kernel_kind::hopper);
        world_memory workspace(world::device, decode::workspace_bytes(world::device, p));
        decode_options options;
        options.workspace = workspace.at();
        buffer<int> bounds(world::device, 1, keys_);
        decode::launch(world::device, p, options,
                       and_masks(window_mask{unbounded, 0}, length_mask{bounds.upload()}, two_of_three_mask{}));
        out_.download();
        log2_sums_.download();
        for (int head = 0; head < heads; ++head) check_head(head);
    }

  private:
    void make_rows() {
        rows_of_keys_.resize(period * head_dim);
        rows_of_values_.resize(period * head_dim);
        special_keys_.resize(special * head_dim);
        special_values_.resize(special * head_dim);
        fill_random(rows_of_keys_, 3, -0.2f, 0.2f);
        fill_random(rows_of_values_, 4);
        fill_random(special_values_, 5, -4, 4);
        // Aligned with the queries of both heads: scores of about 10, and e^10 is 22,000 times the weight of the
        // others.
        for (int i = 0; i < special; ++i) {
            for (int column = 0; column < head_dim; ++column) {
                const float both = float(q_.values[column]) + float(q_.values[head_dim + column]);
                special_keys_[i * head_dim + column] = bf16(both * (3.05f + 0.003f * float(i)));
            }
        }
    }
    void send_rows(world_memory& to, const std::vector<bf16>& usual, const std::vector<bf16>& others) const {
        const std::size_t page = static_cast<std::size_t>(page_rows_) * head_dim;
        std::vector<bf16> all(static_cast<std::size_t>(width_) * page, bf16(NAN));
        const int first = *std::min_element(table_.values.begin(), table_.values.end());
        for (int key = 0; key < keys_; ++key) {
            std::copy_n(usual.begin() + key % period * head_dim, head_dim, all.begin() + place_of(key, first));
        }
        for (int i = 0; i < special; ++i) {
            std::copy_n(others.begin() + i * head_dim, head_dim, all.begin() + place_of(special_[i], first));
        }
        to.write(static_cast<std::size_t>(first) * page * sizeof(bf16), all.data(), all.size() * sizeof(bf16));
    }
    std::size_t place_of(int key, int first_page) const {
        const std::size_t page = static_cast<std::size_t>(table_.values[key / page_rows_] - first_page);
        return (page * page_rows_ + key % page_rows_) * head_dim;
    }

    void check_head(int head) const {
        const auto dot = [&](const std::vector<bf16>& rows, int row) {
            double sum = 0;
            for (int i = 0; i < head_dim; ++i) {
                sum += double(float(q_.values[head * head_dim + i])) * float(rows[row * head_dim + i]);
            }
            return sum / std::sqrt(double(head_dim));
        };
        // How often each of the repeated rows is seen.
        std::vector<double> times(period, keys_ / period);
        for (int i = 0; i < keys_ % period; ++i) times[i] += 1;
        for (const int key : special_) times[key % period] -= 1;
        std::vector<double> expected(head_dim);
        double sum = 0, of_special = 0;
        const auto add = [&](double weight, const std::vector<bf16>& values, int row) {
            sum += weight;
            for (int i = 0; i < head_dim; ++i) expected[i] += weight * float(values[row * head_dim + i]);
        };
        for (int i = 0; i < period; ++i) add(times[i] * std::exp(dot(rows_of_keys_, i)), rows_of_values_, i);
        for (int i = 0; i < special; ++i) {
            const double weight = std::exp(dot(special_keys_, i));
            of_special += weight;
            add(weight, special_values_, i);
        }
        // Each of them contributes enough to be missed.
        CHECK(of_special > 0.2 * sum);
        CHECK(of_special < 0.999 * sum);
        double worst = 0;
        for (int i = 0; i < head_dim; ++i) {
            const double error = std::abs(float(out_.values[head * head_dim + i]) - expected[i] / sum);
            worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
        }
        MESSAGE("a sequence of " << keys_ << ": error " << worst << ", share of the special keys " << of_special / sum
                                 << ", of the logarithm " << log2_sums_.values[head] - std::log2(sum));
        CHECK(worst <= 0.006);
        CHECK(std::abs(log2_sums_.values[head] - std::log2(sum)) <= 0.0005);
    }

    int keys_, page_rows_, width_;
    std::int64_t pages_;
    world_memory k_, v_;
    buffer<bf16> q_, out_;
    buffer<float> log2_sums_;
    buffer<int> lengths_, table_;
    std::vector<int> special_;
    std::vector<bf16> rows_of_keys_, rows_of_values_, special_keys_, special_values_;
};

}  // namespace

TEST_CASE("more than a million keys, at the end of a cache of more than 2^31 elements") {
    const std::int64_t elements = (std::int64_t{1} << 31) + (std::int64_t{1} << 28);
    for (const int page_size : {16, 256}) {
        CAPTURE(page_size);
        long_sequence(1200007, page_size, elements).check();
    }
}

TEST_CASE("a CUDA graph can be replayed with other lengths and block tables") {
    attention_test_case c{
        .batches = 4, .heads = 8, .kv_heads = 2, .seqlen_q = 2, .head_dim_qk = 128, .head_dim_v = 128};
    c.seqlen_k = 3000;
    c.seqused_k = {3000, 3000, 3000, 3000};
    c.page_size = 16;
    c.right = 0;
    attention_trial<bf16> there(world::device, c, 1);
    const auto problem = there.upload();
    const auto mask = there.mask();
    world_memory workspace(world::device, decode::workspace_bytes(world::device, problem));
    decode_options options;
    options.workspace = workspace.at();
    cudaStream_t stream;
    require_done(cudaStreamCreate(&stream));
    decode::launch(world::device, problem, options, mask, {}, stream);  // initialises before the capture
    require_done(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t made;
    require_done(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    decode::launch(world::device, problem, options, mask, {}, stream);
    require_done(cudaStreamEndCapture(stream, &graph));
    require_done(cudaGraphInstantiate(&made, graph, 0));
    unsigned seed = 1;
    for (const std::vector<int>& lengths : {std::vector<int>{3000, 40, 900, 17},
                                            {2, 3000, 0, 100},
                                            {3000, 3000, 3000, 3000},
                                            {0, 0, 0, 0},
                                            {5, 6, 2999, 1}}) {
        // A case with other lengths has other inputs, pages and a narrower block table. All are copied to where the
        // captured launch reads.
        attention_test_case next = c;
        next.seqused_k = lengths;
        attention_trial<bf16> other(world::device, next, ++seed);
        const auto copy = [&](const tensor_layout& from, const tensor_layout& to) {
            std::copy(other.inputs.values.begin() + from.offset, other.inputs.values.begin() + from.end(),
                      there.inputs.values.begin() + to.offset);
        };
        there.inputs.values.assign(there.inputs.values.size(), bf16(NAN));
        copy(other.at.q, there.at.q);
        copy(other.at.k, there.at.k);
        copy(other.at.v, there.at.v);
        there.table.values.assign(there.table.values.size(), 1 << 29);
        for (int i = 0; i < c.batches; ++i) {
            const int width = other.at.table.per_sequence;
            std::copy_n(other.at.table.entries.begin() + i * width, width,
                        there.table.values.begin() + i * there.at.table.per_sequence);
        }
        there.seqused_k.values = lengths;
        there.bounds.values = lengths;
        there.upload();
        there.mask();
        require_done(cudaGraphLaunch(made, stream));
        require_done(cudaStreamSynchronize(stream));
        there.download();
        const std::vector<float> values(there.out.values.begin(), there.out.values.end());
        const auto worst =
            other.compare({values.begin(), values.end()}, {there.lse2.values.begin(), there.lse2.values.end()});
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
    }
    cudaGraphExecDestroy(made);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}
#endif
