// The decode kernel in all its shapes: every group of rows, results put together in several rounds; checked over many schedules, and
// every mutant of its synchronisation told.
#include <imbrex/kernels/paged_decode/hopper.hpp>

#include "kernels/attention/reference.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Three sequences of four or more heads that share their keys, in pages of 16 rows.
template <class Kernel, int Depth>
struct small_cache {
    static constexpr int heads = 4, page_rows = 16, per_sequence = 19;
    int tokens, blocks;
    std::vector<int> lengths{300, 20, 0};
    buffer<bf16> q, k, v, out;
    buffer<float> log2_sums;
    buffer<int> key_lengths, table;
    buffer<int> workspace;

    small_cache(world where, int tokens, int blocks)
        : tokens(tokens),
          blocks(blocks),
          q(where, lengths.size() * tokens * heads * Depth),
          k(where, (per_sequence + 6) * page_rows * Depth, bf16(NAN)),
          v(where, k.values.size(), bf16(NAN)),
          out(where, q.values.size(), bf16(NAN)),
          log2_sums(where, lengths.size() * heads * tokens, NAN),
          key_lengths(where, lengths.size()),
          table(where, lengths.size() * per_sequence, -1),
          workspace(where, Kernel::consumers::workspace_bytes(blocks) / sizeof(int), 0) {
        fill_random(q.values, 1);
        int page = per_sequence + 5;
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            key_lengths.values[i] = lengths[i];
            for (int key = 0; key < lengths[i]; ++key) {
                int& number = table.values[i * per_sequence + key / page_rows];
                if (key % page_rows == 0) number = page--;
                for (int column = 0; column < Depth; ++column) {
                    const std::size_t place = place_of(int(i), key) + column;
                    k.values[place] = bf16(float((key * 7 + column * 3) % 23 - 11) / 11);
                    v.values[place] = bf16(float((key * 5 + column * 11) % 19 - 9) / 9);
                }
            }
        }
    }

    std::size_t place_of(int batch, int key) const {
        const int page = table.values[std::size_t(batch) * per_sequence + key / page_rows];
        return (std::size_t(page) * page_rows + key % page_rows) * Depth;
    }

    typename Kernel::arguments send() {
        typename Kernel::arguments args{};
        const int batches = int(lengths.size()), pages = per_sequence + 6;
        const int part = page_rows;
        args.k = tensor_of<typename Kernel::key_tile>(batch_sequence_head(k.send(), pages, page_rows, 1, Depth),
                                                      tensor_use::load, part);
        args.v = tensor_of<typename Kernel::key_tile>(batch_sequence_head(v.send(), pages, page_rows, 1, Depth),
                                                      tensor_use::load, part);
        args.q = batch_sequence_head<const bf16>(q.send(), batches, tokens, heads, Depth);
        args.results.out = batch_sequence_head(out.send(), batches, tokens, heads, Depth);
        args.results.outputs.log2_sums = batch_head_rows(log2_sums.send(), heads, tokens);
        args.scale = 0.25f;
        args.lengths = {{tokens, per_sequence * page_rows, key_lengths.send()}, table.send(), per_sequence, page_rows};
        args.sizes = {batches, 1, heads, 1, blocks % 2 == 0 ? 3 : 0};
        args.counters = workspace.send();
        args.partials = reinterpret_cast<decode_partial*>(reinterpret_cast<char*>(args.counters) +
                                                          Kernel::consumers::counters_bytes(blocks));
        return args;
    }

    void check() {
        out.fetch();
        log2_sums.fetch();
        double worst = 0;
        for (int batch = 0; batch < int(lengths.size()); ++batch) {
            for (int head = 0; head < heads; ++head) {
                for (int token = 0; token < tokens; ++token) check_row(batch, head, token, worst);
            }
        }
        CHECK(worst <= 0.01);
    }
    void check_row(int batch, int head, int token, double& worst) {
        const std::size_t row = ((std::size_t(batch) * tokens + token) * heads + head) * Depth;
        const int seen = std::max(0, lengths[batch] - tokens + token + 1);
        std::vector<double> expected(Depth);
        double sum = 0;
        for (int key = 0; key < seen; ++key) {
            double dot = 0;
            for (int i = 0; i < Depth; ++i) {
                dot += double(float(q.values[row + i])) * float(k.values[place_of(batch, key) + i]);
            }
            const double weight = std::exp(dot * 0.25);
            sum += weight;
            for (int i = 0; i < Depth; ++i) expected[i] += weight * float(v.values[place_of(batch, key) + i]);
        }
        for (int i = 0; i < Depth; ++i) {
            worst = std::max(worst, std::abs(float(out.values[row + i]) - (seen > 0 ? expected[i] / sum : 0)));
            if (std::isnan(float(out.values[row + i]))) worst = INFINITY;
        }
        const float found = log2_sums.values[(std::size_t(batch) * heads + head) * tokens + token];
        const bool right = seen > 0 ? std::abs(found - std::log2(sum)) <= 0.001 : found == -INFINITY;
        if (!right) worst = INFINITY;
    }
};

template <int Depth, decode_shape Shape>
using causal_decode = paged_decode_hopper<bf16, Depth, causal_mask, plain_score, Shape>;

// A grid of 1 has no parts; one of many has parts of many blocks.
template <int Depth, decode_shape Shape>
void check_shape(int tokens) {
    using kernel = causal_decode<Depth, Shape>;
    for (const world where : worlds()) {
        for (const int blocks : {1, 3, 40}) {
            CAPTURE(name_of(where));
            CAPTURE(blocks);
            small_cache<kernel, Depth> there(where, tokens, blocks);
            run<kernel>(where, {blocks}, there.send(), 2);
            there.check();
        }
    }
}

}  // namespace

TEST_CASE("one group of rows to eight, stages of 16 and 32 keys, results in one round and in several") {
    check_shape<32, decode_shape{1, 16, 8, 32}>(1);
    check_shape<64, decode_shape{2, 32, 4, 64}>(7);
    check_shape<96, decode_shape{4, 32, 4, 32}>(12);
    check_shape<64, decode_shape{8, 16, 3, 64}>(40);
}

#if !defined(__CUDACC__)
namespace {

template <int Depth, decode_shape Shape>
void check_synchronisation(int tokens, int blocks, int schedules) {
    using kernel = causal_decode<Depth, Shape>;
    small_cache<kernel, Depth> there(world::host, tokens, blocks);
    const auto args = there.send();
    const auto found = host::check<kernel>({blocks}, args, schedules);
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
    const host::mutation_score score = host::mutate<kernel>({blocks}, args);
    MESSAGE("decode: " << score.killed() << " / " << score.total());
    INFO(score.text());
    CHECK(score.total() > 0);
    CHECK(score.killed() == score.total());
}

}  // namespace

TEST_CASE("decode is silent over 1,000 schedules, and each of its mutants is told") {
    check_synchronisation<32, decode_shape{1, 16, 8, 32}>(9, 2, 1000);
    check_synchronisation<96, decode_shape{4, 16, 4, 32}>(17, 2, 300);
}
#endif
