// Tests of paged_cascade against a reference in double over prefix and suffix, and against paged_decode with block
// tables that begin with the prefix's pages.
#include <imbrex/kernels/paged_cascade.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int head_dim = 64;
using cascade = paged_cascade<bf16, head_dim_set{head_dim}, causal_mask>;

struct cascade_case {
    std::vector<int> own;  // suffix length of each sequence
    int prefix = 0;
    int tokens = 1;  // per sequence; with varlen see below
    std::vector<int> packed = {};
    int heads = 4, kv_heads = 2;
    int page_size = 16;
    bool sinks = false;
    int blocks = 7;
    int shift = 0;  // misaligns queries by this many elements, so that TMA cannot read them

    int sequences() const { return static_cast<int>(own.size()); }
    int tokens_of(int sequence) const { return packed.empty() ? tokens : packed[sequence]; }
    int all_tokens() const {
        return packed.empty() ? sequences() * tokens : std::accumulate(packed.begin(), packed.end(), 0);
    }
};

// Pages in random order; the rest of the cache is NaN.
class cascade_trial {
  public:
    cascade_trial(world where, const cascade_case& given)
        : c(given),
          where_(where),
          prefix_width_(std::max(1, pages_of(c.prefix))),
          width_(std::max(1, pages_of(*std::max_element(c.own.begin(), c.own.end())))),
          pages_(prefix_width_ + c.sequences() * width_ + 2),
          q(where, c.all_tokens() * c.heads * head_dim + c.shift),
          k(where, std::size_t(pages_) * c.page_size * c.kv_heads * head_dim, bf16(NAN)),
          v(where, k.values.size(), bf16(NAN)),
          out(where, c.all_tokens() * c.heads * head_dim, bf16(NAN)),
          lse2(where, c.all_tokens() * c.heads, NAN),
          sinks(where, c.heads),
          prefix_length(where, 1, c.prefix),
          lengths(where, c.own.size()),
          starts(where, c.own.size() + 1),
          prefix_table(where, prefix_width_),
          table(where, std::size_t(c.sequences()) * width_) {
        lengths.values = c.own;
        for (int i = 0; i < c.sequences(); ++i) starts.values[i + 1] = starts.values[i] + c.tokens_of(i);
        fill_random(q.values, 1);
        fill_random(sinks.values, 2, -1, 3);
        std::vector<int> order(pages_);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(3));
        std::copy_n(order.begin(), prefix_width_, prefix_table.values.begin());
        std::copy_n(order.begin() + prefix_width_, table.values.size(), table.values.begin());
        std::vector<float> numbers(k.values.size());
        fill_random(numbers, 4);
        const auto fill_key = [&](std::size_t row) {
            for (int i = 0; i < c.kv_heads * head_dim; ++i) {
                k.values[row * c.kv_heads * head_dim + i] = bf16(numbers[row * c.kv_heads * head_dim + i]);
                v.values[row * c.kv_heads * head_dim + i] =
                    bf16(numbers[(row * c.kv_heads * head_dim + i) * 7 % 10007]);
            }
        };
        for (int key = 0; key < c.prefix; ++key) fill_key(prefix_row(key));
        for (int i = 0; i < c.sequences(); ++i) {
            for (int key = 0; key < c.own[i]; ++key) fill_key(own_row(i, key));
        }
    }

    attention_problem<bf16> own() {
        attention_problem<bf16> p;
        const bool packed = !c.packed.empty();
        const int batches = packed ? 1 : c.sequences(), tokens = packed ? c.all_tokens() : c.tokens;
        p.q = batch_sequence_head<const bf16>(q.upload() + c.shift, batches, tokens, c.heads, head_dim);
        p.k = batch_sequence_head<const bf16>(k.upload(), pages_, c.page_size, c.kv_heads, head_dim);
        p.v = batch_sequence_head<const bf16>(v.upload(), pages_, c.page_size, c.kv_heads, head_dim);
        p.out = batch_sequence_head(out.upload(), batches, tokens, c.heads, head_dim);
        p.lse2 = batch_head_rows(lse2.upload(), c.heads, tokens);
        p.seqused_k = lengths.upload();
        p.paged_kv = {table.upload(), width_};
        if (packed) p.varlen = {c.sequences(), starts.upload(), nullptr};
        if (c.sinks) p.sinks = sinks.upload();
        return p;
    }
    // The queries, and the keys and values of the sequences, all or the newest: what a kernel before the cascade writes.
    std::vector<matrix_view<bf16>> inputs(bool all) {
        const int columns = c.kv_heads * head_dim;
        std::vector<matrix_view<bf16>> rows{matrix(q.values.data() + c.shift, c.all_tokens() * c.heads, head_dim)};
        for (int i = 0; i < c.sequences(); ++i) {
            for (int key = all ? 0 : c.own[i] - 1; key < c.own[i]; ++key) {
                for (buffer<bf16>* cache : {&k, &v}) {
                    rows.push_back(matrix(cache->values.data() + own_row(i, key) * columns, 1, columns));
                }
            }
        }
        return rows;
    }
    shared_prefix prefix() { return {{prefix_table.upload(), prefix_width_}, prefix_length.upload()}; }

    // Twice in the same workspace.
    void check() {
        const auto problem = own();
        const auto shared = prefix();
        buffer<int> workspace(where_, cascade::workspace_bytes(where_, problem, shared, c.blocks) / sizeof(int), 0);
        cascade_options options;
        options.workspace = workspace.upload();
        options.blocks = c.blocks;
        for (const bool early : {false, true}) {
            out.values.assign(out.values.size(), bf16(NAN));
            out.upload();
            options.pdl_prefetch = early;
            cascade::launch(where_, problem, shared, options);
            compare();
        }
    }

    void compare() {
        out.download();
        lse2.download();
        double worst = 0, worst_sum = 0;
        for (int sequence = 0; sequence < c.sequences(); ++sequence) {
            for (int token = 0; token < c.tokens_of(sequence); ++token) {
                for (int head = 0; head < c.heads; ++head) compare_row(sequence, token, head, worst, worst_sum);
            }
        }
        CHECK(worst <= 0.01);
        CHECK(worst_sum <= 0.001);
    }

  private:
    int pages_of(int keys) const { return (keys + c.page_size - 1) / c.page_size; }
    std::size_t prefix_row(int key) const {
        return std::size_t(prefix_table.values[key / c.page_size]) * c.page_size + key % c.page_size;
    }
    std::size_t own_row(int sequence, int key) const {
        return std::size_t(table.values[sequence * width_ + key / c.page_size]) * c.page_size + key % c.page_size;
    }

    void compare_row(int sequence, int token, int head, double& worst, double& worst_sum) const {
        const int tokens = c.tokens_of(sequence), row = starts.values[sequence] + token;
        const bf16* const query = &q.values[(std::size_t(row) * c.heads + head) * head_dim + c.shift];
        std::vector<double> expected(head_dim);
        double sum = c.sinks ? std::exp(double(sinks.values[head])) : 0;
        const auto see = [&](std::size_t key_row) {
            const std::size_t place = (key_row * c.kv_heads + head / (c.heads / c.kv_heads)) * head_dim;
            double dot = 0;
            for (int i = 0; i < head_dim; ++i) dot += double(float(query[i])) * float(k.values[place + i]);
            const double weight = std::exp(dot / 8);
            sum += weight;
            for (int i = 0; i < head_dim; ++i) expected[i] += weight * float(v.values[place + i]);
        };
        for (int key = 0; key < c.prefix; ++key) see(prefix_row(key));
        for (int key = 0; key <= c.own[sequence] - tokens + token; ++key) see(own_row(sequence, key));
        const auto note = [](double& most, double error) {
            most = error <= most ? most : std::isnan(error) ? INFINITY : error;
        };
        for (int i = 0; i < head_dim; ++i) {
            const float found = float(out.values[(std::size_t(row) * c.heads + head) * head_dim + i]);
            note(worst, std::abs(found - (sum > 0 ? expected[i] / sum : 0)));
        }
        // [batch, head, query]
        const bool packed = !c.packed.empty();
        const int number = packed ? head * c.all_tokens() + row : (sequence * c.heads + head) * tokens + token;
        const float found = lse2.values[number];
        note(worst_sum, sum > 0 ? std::abs(found - std::log2(sum)) : found == -INFINITY ? 0 : INFINITY);
    }

  public:
    const cascade_case c;

  private:
    world where_;
    int prefix_width_, width_, pages_;

  public:
    buffer<bf16> q, k, v, out;
    buffer<float> lse2, sinks;
    buffer<int> prefix_length, lengths, starts, prefix_table, table;
};

void check_cascade(const cascade_case& given) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        cascade_trial(where, given).check();
    }
}

}  // namespace

TEST_CASE("prefix and suffix lengths at every boundary, one token and several") {
    check_cascade({.own = {1, 5, 16, 17, 33, 2, 1}, .prefix = 100});
    check_cascade({.own = {3, 40, 16}, .prefix = 64, .tokens = 3, .sinks = true});
    check_cascade(
        {.own = {20, 9, 31, 64}, .prefix = 31, .tokens = 9, .heads = 6, .kv_heads = 1, .page_size = 32, .blocks = 40});
    check_cascade({.own = {7}, .prefix = 500, .heads = 8, .kv_heads = 4, .blocks = 3});
}

TEST_CASE("uses the sm_80 kernels where TMA cannot read") {
    check_cascade({.own = {1, 5, 16, 17, 33, 2, 1}, .prefix = 100, .shift = 1});
    check_cascade({.own = {20, 9, 31, 0}, .prefix = 31, .tokens = 9, .heads = 6, .kv_heads = 1, .shift = 3});
}

TEST_CASE("empty prefix, empty suffixes, or both") {
    check_cascade({.own = {5, 20, 1}, .prefix = 0});
    check_cascade({.own = {0, 20, 0, 1}, .prefix = 70});
    check_cascade({.own = {0, 0}, .prefix = 0});
    // Not even a page.
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        cascade_trial there(where, {.own = {5, 20, 1}, .prefix = 0});
        const auto problem = there.own();
        buffer<int> workspace(where, cascade::workspace_bytes(where, problem, {}, 3) / sizeof(int), 0);
        cascade_options options;
        options.workspace = workspace.upload();
        options.blocks = 3;
        cascade::launch(where, problem, {}, options);
        there.compare();
    }
}

TEST_CASE("varlen sequences with different numbers of tokens") {
    check_cascade({.own = {20, 3, 50, 18}, .prefix = 90, .packed = {1, 3, 0, 7}});
    check_cascade({.own = {20, 30}, .prefix = 200, .packed = {20, 5}, .sinks = true, .blocks = 30});
}

TEST_CASE("many sequences") {
    cascade_case c{.own = {}, .prefix = 300, .heads = 8, .kv_heads = 2, .blocks = 20};
    for (int i = 0; i < 40; ++i) c.own.push_back(1 + i * 11 % 60);
#if defined(__CUDACC__)
    c.prefix = 16384;
    c.blocks = 0;
    for (int i = 0; i < 24; ++i) c.own.push_back(256);
#endif
    check_cascade(c);
}

TEST_CASE("rejects invalid arguments") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        cascade_trial there(where, {.own = {3, 40, 16}, .prefix = 64, .tokens = 3});
        const auto good = there.own();
        const auto prefix = there.prefix();
        const std::size_t bytes = cascade::workspace_bytes(where, good, prefix, 2);
        buffer<int> workspace(where, bytes / sizeof(int), 0);
        const auto refused = [&](auto change) {
            auto problem = good;
            auto shared = prefix;
            cascade_options options;
            options.workspace = workspace.upload();
            options.blocks = 2;
            change(problem, shared, options);
            return error_message_of([&] { cascade::launch(where, problem, shared, options); });
        };
        CHECK(refused([](auto&, auto&, auto& o) {
                  o.workspace = nullptr;
              }).ends_with("; " + std::to_string(bytes) + " bytes at a multiple of 16 are needed"));
        CHECK(refused([](auto& p, auto&, auto&) { p.q.strides.given[0] += 8; }) ==
              "q.strides[0]: 776; the 3 tokens of a sequence are 256 elements apart, and consecutive sequences must "
              "continue at the "
              "same distance");
        CHECK(refused([](auto& p, auto&, auto&) { p.scale = 0.0f; }) == "scale: 0; a positive number is needed");
        if (where != world::device) {
            const int too_long = 65;
            CHECK(refused([&](auto&, auto& s, auto&) { s.seqused_k = &too_long; }) ==
                  "seqused_k[0]: 65; the pages of a sequence have room for 64 keys, and none may be negative");
        }
        there.out.download();
        for (const bf16 value : there.out.values) REQUIRE(std::isnan(float(value)));
    }
}

#if !defined(__CUDACC__)
TEST_CASE("check of a cascade: two kernels that overlap by PDL") {
    cascade_trial there(world::host_checked, {.own = {3, 40, 16}, .prefix = 64, .tokens = 3, .sinks = true});
    const auto problem = there.own();
    const auto shared = there.prefix();
    const std::size_t bytes = cascade::workspace_bytes(world::host_checked, problem, shared, 5);
    std::vector<int> workspace(bytes / sizeof(int), 0);
    cascade_options options;
    options.workspace = workspace.data();
    options.blocks = 5;
    for (const bool early : {false, true}) {
        options.pdl_prefetch = early;
        CHECK(text_of(cascade::check(problem, {.schedules = 6}, shared, options)) == "");
    }
    options.workspace = nullptr;
    CHECK(error_message_of([&] { cascade::check(problem, {}, shared, options); }).find("options.workspace: ") == 0);
}

// A kernel before or after a cascade in a decode step: it writes rows, or reads them.
template <bool Writes>
struct neighbour {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;
    using arguments = const std::vector<matrix_view<bf16>>*;
    template <class Block, class Shared>
    static void run(Block& block, const arguments& rows, Shared&) {
        block.each_warp([&](warp& self) {
            pdl_launch_dependents(self);
            pdl_wait(self);
            for (const matrix_view<bf16>& one : *rows) {
                for (int row = 0; row < one.rows(); row += 16) {
                    for (int column = 0; column < one.columns(); column += 64) visit(self, one.at(row, column));
                }
            }
        });
    }
    static void visit(warp& self, const global_tile<bf16>& place) {
        warp_tile<bf16, 16, 64> values;
        if constexpr (Writes) {
            fill(self, values, bf16(0.5f));
            store(self, place, values);
        } else {
            load(self, values, place);
        }
    }
};

// Two steps. Before the first, without pdl_prefetch, a kernel writes all keys of the sequences; before the second only
// those of the new tokens.
void check_steps(const cascade_case& given, decode_kernel_kind expected, const std::vector<std::string>& lines) {
    const world where = world::host_checked;
    cascade_trial there(where, given);
    const auto problem = there.own();
    const auto shared = there.prefix();
    using suffix = paged_decode<bf16, decode_config{.head_dims = head_dim_set{head_dim}}, causal_mask>;
    CHECK(suffix::choice(where, problem, {.blocks = given.blocks}) == expected);
    const auto all = there.inputs(true), newest = there.inputs(false);
    const std::vector<matrix_view<bf16>> results{
        matrix(there.out.values.data(), static_cast<int>(there.out.values.size()) / head_dim, head_dim)};
    std::vector<int> workspace(cascade::workspace_bytes(where, problem, shared, given.blocks) / sizeof(int));
    const auto steps = [&] {
        workspace.assign(workspace.size(), 0);
        for (const bool early : {false, true}) {
            launch<neighbour<true>>(where, {1}, early ? &newest : &all);
            cascade::launch(where, problem, shared,
                            {.workspace = workspace.data(), .pdl_prefetch = early, .blocks = given.blocks});
            launch<neighbour<false>>(where, {1}, &results);
        }
    };
    const std::string score = check_stream("cascade", steps, 20).text();
    for (const std::string& line : lines) {
        CAPTURE(line);
        CHECK(score.find(line) != std::string::npos);
    }
}

TEST_CASE("every PDL wait and launch of a cascade is necessary") {
    const std::vector<std::string> by_roles{"PDL wait by block at ", "PDL launch of dependents by block at ",
                                            "PDL wait by producer at ", "PDL wait by consumer at "};
    check_steps({.own = {40, 17, 5}, .prefix = 70, .blocks = 3}, decode_kernel_kind::hopper, by_roles);
    check_steps({.own = {40, 17, 5}, .prefix = 70, .heads = 8, .kv_heads = 8, .blocks = 2},
                decode_kernel_kind::kv_heads_8, by_roles);
    check_steps({.own = {40, 17, 5}, .prefix = 70, .blocks = 0}, decode_kernel_kind::cluster,
                {"PDL wait by block at ", "PDL launch of dependents by block at ", "PDL wait by warp at "});
}
#endif
