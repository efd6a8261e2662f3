// Context parallel decode against loops in double over the whole KV cache: any number of ranks, ragged and empty
// shards, new tokens on one rank or another, varlen sequences, sinks. All ranks get the same bits.
#include <imbrex/comm/loopback.hpp>
#include <imbrex/kernels/context_parallel_decode.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;
using namespace std::chrono_literals;

namespace {

constexpr int head_dim = 64;
using decode = context_parallel_decode<bf16, head_dim_set{head_dim}>;

struct context_parallel_case {
    std::vector<std::vector<int>> shards;  // [rank][sequence]: keys
    std::vector<int> tokens;               // of each sequence: equal, unless varlen
    bool packed = false;
    int before = 0, behind = 0;  // rows of varlen queries that belong to no sequence
    int heads = 4, kv_heads = 2;
    int page_size = 16;
    int append_rank = 0;
    std::vector<int> append_ranks = {};
    bool sinks = false;
    int blocks = 3;

    int ranks() const { return static_cast<int>(shards.size()); }
    int sequences() const { return static_cast<int>(tokens.size()); }
    int all_tokens() const { return before + std::accumulate(tokens.begin(), tokens.end(), 0) + behind; }
    int append_rank_of(int sequence) const { return append_ranks.empty() ? append_rank : append_ranks[sequence]; }
    int first_row(int sequence) const { return before + std::accumulate(tokens.begin(), tokens.begin() + sequence, 0); }
};

// One rank: its shard in pages in random order, in a cache that is NaN everywhere else, and its results.
struct rank_memory {
    int width, pages;
    buffer<bf16> q, k, v, out;
    buffer<float> lse2, sinks;
    buffer<int> table, lengths, starts, append_ranks;
    std::unique_ptr<buffer<int>> workspace;

    rank_memory(world where, const context_parallel_case& c, int rank)
        : width(pages_of(c, *std::max_element(c.shards[rank].begin(), c.shards[rank].end()))),
          pages(width == 0 ? 0 : c.sequences() * width + 1),
          q(where, c.all_tokens() * c.heads * head_dim),
          k(where, std::size_t(pages) * c.page_size * c.kv_heads * head_dim, bf16(NAN)),
          v(where, k.values.size(), bf16(NAN)),
          out(where, q.values.size(), bf16(NAN)),
          lse2(where, c.all_tokens() * c.heads, NAN),
          sinks(where, c.heads),
          table(where, std::size_t(c.sequences()) * width),
          lengths(where, c.sequences()),
          starts(where, c.sequences() + 1),
          append_ranks(where, c.sequences()) {
        fill_random(q.values, 1);
        fill_random(sinks.values, 2, -1, 3);
        lengths.values = c.shards[rank];
        for (int i = 0; i <= c.sequences(); ++i) starts.values[i] = c.first_row(i);
        if (!c.append_ranks.empty()) append_ranks.values = c.append_ranks;
        std::vector<int> order(pages);
        std::iota(order.begin(), order.end(), 0);
        std::mt19937 random(10 + rank);
        std::shuffle(order.begin(), order.end(), random);
        std::copy_n(order.begin(), table.values.size(), table.values.begin());
        std::uniform_real_distribution<float> number(-1, 1);
        for (int i = 0; i < c.sequences(); ++i) {
            for (int key = 0; key < c.shards[rank][i]; ++key) {
                for (int column = 0; column < c.kv_heads * head_dim; ++column) {
                    k.values[row(c, i, key) * c.kv_heads * head_dim + column] = bf16(number(random));
                    v.values[row(c, i, key) * c.kv_heads * head_dim + column] = bf16(number(random));
                }
            }
        }
    }
    static int pages_of(const context_parallel_case& c, int keys) { return (keys + c.page_size - 1) / c.page_size; }
    std::size_t row(const context_parallel_case& c, int sequence, int key) const {
        return std::size_t(table.values[sequence * width + key / c.page_size]) * c.page_size + key % c.page_size;
    }

    decode::problem upload(const context_parallel_case& c) {
        const int batches = c.packed ? 1 : c.sequences(), tokens = c.packed ? c.all_tokens() : c.tokens[0];
        decode::problem p;
        p.q = batch_sequence_head<const bf16>(q.upload(), batches, tokens, c.heads, head_dim);
        p.k = batch_sequence_head<const bf16>(k.upload(), pages, c.page_size, c.kv_heads, head_dim);
        p.v = batch_sequence_head<const bf16>(v.upload(), pages, c.page_size, c.kv_heads, head_dim);
        p.out = batch_sequence_head(out.upload(), batches, tokens, c.heads, head_dim);
        p.lse2 = batch_head_rows(lse2.upload(), c.heads, tokens);
        p.seqused_k = lengths.upload();
        p.paged_kv = {table.upload(), width};
        if (c.packed) p.varlen = {c.sequences(), starts.upload(), nullptr};
        if (c.sinks) p.sinks = sinks.upload();
        return p;
    }
    // The LSE is [batch, head, token].
    double lse2_at(const context_parallel_case& c, int sequence, int token, int head) const {
        if (c.packed) return lse2.values[head * c.all_tokens() + c.first_row(sequence) + token];
        return lse2.values[(sequence * c.heads + head) * c.tokens[0] + token];
    }
};

class context_parallel_trial {
  public:
    context_parallel_trial(world where, const context_parallel_case& given) : c(given), where_(where) {
        for (int rank = 0; rank < c.ranks(); ++rank) {
            memory.push_back(std::make_unique<rank_memory>(where, c, rank));
            rank_memory& one = *memory.back();
            problems.push_back(one.upload(c));
            const std::size_t bytes = decode::workspace_bytes(where, problems.back(), c.blocks);
            one.workspace = std::make_unique<buffer<int>>(where, bytes / sizeof(int), 0);
            context_parallel_decode_options use;
            use.workspace = one.workspace->upload();
            use.append_rank = c.append_rank;
            if (!c.append_ranks.empty()) use.append_ranks = one.append_ranks.upload();
            use.blocks = c.blocks;
            options.push_back(use);
        }
        memory.back()->out.download();  // after all that was sent
    }

    void launch(std::uint64_t seed, bool early) {
        loopback_group group(where_, c.ranks(), {.timeout = 60s, .seed = seed});
        run_ranks(group, [&](loopback& comm) {
            const world_stream stream(where_);
            context_parallel_decode_options use = options[comm.rank()];
            use.pdl_prefetch = early;
            decode::require_same_on_all_ranks(comm, problems[comm.rank()], use);
            decode::launch(comm, problems[comm.rank()], use, {}, stream.get());
            comm.synchronise(stream.get());
        });
    }

    // Varlen sequences that begin this many rows later leave data behind in the workspace.
    void launch_with_later_rows(int rows) {
        const auto shift = [&](int by) {
            for (const auto& one : memory) {
                for (int& start : one->starts.values) start += by;
                one->starts.upload();
            }
            memory.back()->out.download();
        };
        shift(rows);
        launch(0, false);
        shift(-rows);
    }

    // Twice in the same workspace.
    void check(std::uint64_t seed) {
        std::vector<bf16> bits;
        for (const bool early : {false, true}) {
            for (const auto& one : memory) {
                one->out.values.assign(one->out.values.size(), bf16(NAN));
                one->out.upload();
            }
            memory.back()->out.download();
            launch(seed, early);
            for (const auto& one : memory) {
                one->out.download();
                one->lse2.download();
            }
            compare();
            if (early) CHECK(same(bits, memory[0]->out.values));
            bits = memory[0]->out.values;
        }
    }

    const context_parallel_case c;
    std::vector<std::unique_ptr<rank_memory>> memory;
    std::vector<decode::problem> problems;
    std::vector<context_parallel_decode_options> options;

  private:
    template <class T>
    static bool same(const std::vector<T>& a, const std::vector<T>& b) {
        return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
    }

    void compare() const {
        for (const auto& one : memory) {
            CHECK(same(one->out.values, memory[0]->out.values));
            CHECK(same(one->lse2.values, memory[0]->lse2.values));
        }
        double worst = 0, worst_sum = 0;
        for (int sequence = 0; sequence < c.sequences(); ++sequence) {
            for (int token = 0; token < c.tokens[sequence]; ++token) {
                for (int head = 0; head < c.heads; ++head) compare_row(sequence, token, head, worst, worst_sum);
            }
        }
        CHECK(worst <= 0.01);
        CHECK(worst_sum <= 0.001);
        const int last = c.first_row(c.sequences());
        for (int row = 0; row < c.all_tokens(); ++row) {
            if (row >= c.before && row < last) continue;
            for (int i = 0; i < c.heads * head_dim; ++i) {
                CHECK(float(memory[0]->out.values[std::size_t(row) * c.heads * head_dim + i]) == 0);
            }
        }
    }
    void compare_row(int sequence, int token, int head, double& worst, double& worst_sum) const {
        const std::size_t query = (std::size_t(c.first_row(sequence) + token) * c.heads + head) * head_dim;
        std::vector<double> expected(head_dim);
        double sum = c.sinks ? std::exp(double(memory[0]->sinks.values[head])) : 0;
        for (int rank = 0; rank < c.ranks(); ++rank) {
            const rank_memory& one = *memory[rank];
            const int hidden = c.append_rank_of(sequence) == rank ? c.tokens[sequence] - 1 - token : 0;
            for (int key = 0; key < c.shards[rank][sequence] - hidden; ++key) {
                const std::size_t place =
                    (one.row(c, sequence, key) * c.kv_heads + head / (c.heads / c.kv_heads)) * head_dim;
                double dot = 0;
                for (int i = 0; i < head_dim; ++i) {
                    dot += double(float(memory[0]->q.values[query + i])) * float(one.k.values[place + i]);
                }
                const double weight = std::exp(dot / 8);
                sum += weight;
                for (int i = 0; i < head_dim; ++i) expected[i] += weight * float(one.v.values[place + i]);
            }
        }
        for (int i = 0; i < head_dim; ++i) {
            const double found = float(memory[0]->out.values[query + i]), wanted = sum == 0 ? 0 : expected[i] / sum;
            worst = std::isnan(found) ? INFINITY : std::fmax(worst, std::fabs(found - wanted));
        }
        const double found = memory[0]->lse2_at(c, sequence, token, head), wanted = std::log2(sum);
        if (found != wanted) worst_sum = std::fmax(worst_sum, std::isnan(found) ? INFINITY : std::fabs(found - wanted));
    }

    world where_;
};

void check_context_parallel(const context_parallel_case& c, const std::vector<std::uint64_t>& seeds = {0}) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(c.ranks());
        context_parallel_trial trial(where, c);
        if (c.packed) trial.launch_with_later_rows(c.behind);
        for (const std::uint64_t seed : seeds) {
            CAPTURE(seed);
            trial.check(seed);
            if (where != world::host_checked) break;
        }
    }
}

// Shards of any size, some empty; the append_rank has at least the new tokens.
std::vector<std::vector<int>> random_shards(std::mt19937& random, int ranks, const std::vector<int>& tokens, int most,
                                            const std::vector<int>& append_ranks) {
    std::vector<std::vector<int>> made(ranks, std::vector<int>(tokens.size()));
    for (int rank = 0; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const int keys = random() % 3 == 0 ? 0 : static_cast<int>(random() % static_cast<unsigned>(most));
            made[rank][i] = append_ranks[i] == rank ? std::max(keys, tokens[i]) : keys;
        }
    }
    return made;
}

}  // namespace

TEST_CASE("a token attends to keys on any number of ranks, and all ranks get the same bits") {
    std::mt19937 random(1);
    for (int ranks = 1; ranks <= 8; ++ranks) {
        context_parallel_case c;
        c.tokens = {1, 1, 1};
        c.append_rank = ranks / 2;
        c.shards = random_shards(random, ranks, c.tokens, 90, {c.append_rank, c.append_rank, c.append_rank});
        c.sinks = ranks % 2 == 0;
        check_context_parallel(c, {0, 1, 2});
    }
}

TEST_CASE("several tokens are causal, whichever rank has their keys") {
    std::mt19937 random(2);
    for (const int ranks : {1, 2, 3, 5, 6}) {
        context_parallel_case c;
        c.tokens = {5, 5, 5, 5};
        c.heads = 6;
        c.kv_heads = 1;  // 30 rows share a KV head
        c.page_size = 32;
        c.sinks = ranks == 3;
        for (int i = 0; i < 4; ++i) c.append_ranks.push_back(static_cast<int>(random() % unsigned(ranks)));
        c.append_ranks[1] = no_append_rank;
        c.shards = random_shards(random, ranks, c.tokens, 70, c.append_ranks);
        check_context_parallel(c, {3, 4});
    }
}

TEST_CASE("varlen sequences with different numbers of tokens, and rows that belong to no sequence") {
    std::mt19937 random(3);
    for (const int ranks : {1, 3, 4}) {
        context_parallel_case c;
        c.packed = true;
        c.tokens = {3, 0, 1, 7};
        c.before = ranks == 3 ? 2 : 0;
        c.behind = 1;
        c.append_ranks = {ranks - 1, 0, ranks / 2, 0};
        c.shards = random_shards(random, ranks, c.tokens, 60, c.append_ranks);
        check_context_parallel(c, {5});
    }
}

TEST_CASE("ranks and sequences without keys contribute nothing") {
    context_parallel_case c;
    c.tokens = {1, 1};
    c.append_rank = no_append_rank;
    c.shards = {{0, 0}, {40, 0}, {0, 0}};
    check_context_parallel(c, {6});
    c.sinks = true;
    check_context_parallel(c, {7});
    c.shards = {{0, 0}, {0, 0}};
    check_context_parallel(c, {8});
}

TEST_CASE("rejects invalid arguments, and sends nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        context_parallel_case c;
        c.tokens = {2};
        c.shards = {{20}};
        context_parallel_trial trial(where, c);
        loopback_group group(where, 1);
        const auto refused = [&](auto change) {
            decode::problem p = trial.problems[0];
            context_parallel_decode_options use = trial.options[0];
            change(p, use);
            return error_message_of([&] { run_ranks(group, [&](loopback& comm) { decode::launch(comm, p, use); }); });
        };
        CHECK(refused([](auto&, auto& use) { use.append_rank = 1; }) ==
              "options.append_rank: 1; must be -1 (none) to 0");
        CHECK(refused([](auto&, auto& use) { use.workspace = nullptr; }).starts_with("options.workspace: "));
        CHECK(refused([](auto& p, auto&) { p.out.pointer = nullptr; }) ==
              "out.pointer: null; a tensor of 1 x 4 x 2 x 64 is needed");
        CHECK(refused([](auto& p, auto&) { --p.k.extents.given[3]; }) ==
              "k.extents[3]: 63; q has 64 columns, and it must have as many");
        CHECK(refused([](auto& p, auto&) { p.lse2.head_stride = 1; }) ==
              "lse2.head_stride: 1; must be at least 2, the number of queries");
        if (where == world::device) continue;
        const int one = 1, seven = 7;
        CHECK(refused([&](auto& p, auto&) { p.seqused_k = &one; }) ==
              "seqused_k[0]: 1; rank 0 appends 2 new tokens, so its shard must have at least that many keys");
        CHECK(refused([&](auto&, auto& use) { use.append_ranks = &seven; }) ==
              "options.append_ranks[0]: 7; must be -1 (none) to 0");
    }
}

TEST_CASE("ranks with different arguments get an error, before or during communication") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        context_parallel_case c;
        c.tokens = {2, 2};
        c.shards = {{20, 3}, {0, 30}};
        context_parallel_trial trial(where, c);
        const auto with_fewer = [&](bool asks) {
            loopback_group group(where, 2, {.timeout = 20s});
            return error_message_of([&] {
                run_ranks(group, [&](loopback& comm) {
                    const world_stream stream(where);
                    decode::problem p = trial.problems[comm.rank()];
                    if (comm.rank() == 1) p.q.extents.given[0] = p.out.extents.given[0] = 1;
                    if (asks) decode::require_same_on_all_ranks(comm, p, trial.options[comm.rank()]);
                    decode::launch(comm, p, trial.options[comm.rank()], {}, stream.get());
                    comm.synchronise(stream.get());
                });
            });
        };
        CHECK(with_fewer(true) ==
              "q.extents[0]: 1 on rank 1, and 2 on rank 0, before step 0; must be the same on all ranks");
        const std::string late = with_fewer(false);
        INFO(late);
        CHECK(late.find("expects") != std::string::npos);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("check of context parallel decode") {
    context_parallel_case c;
    c.tokens = {2, 2};
    c.shards = {{20, 2}, {0, 40}, {33, 7}};
    context_parallel_trial trial(world::host_checked, c);
    CHECK(text_of(decode::check(trial.problems, {.schedules = 3}, trial.options)) == "");
    CHECK(error_message_of([&] { decode::check(trial.problems, {}, {}); }) ==
          "of_ranks: 0; there must be one for each of 3 problems");
    trial.options[1].append_rank = 2;
    CHECK(error_message_of([&] { decode::check(trial.problems, {}, trial.options); }).find("options.append_rank: ") ==
          0);
}
#endif
