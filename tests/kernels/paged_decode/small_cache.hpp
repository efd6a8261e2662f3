// A small cache in pages for a decode kernel that is launched by itself, and what its tests ask of every such kernel: right results in
// grids of any size, silence over many schedules, and that every mutant of its synchronisation is told.
#pragma once

#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/consumers.hpp>
#include <imbrex/tile/tensor.hpp>

#include "kernels/attention/reference.hpp"
#include "synchronisation.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace imbrex_test {

using imbrex::attention_view;
using imbrex::batch_head_rows;
using imbrex::batch_sequence_head;
using imbrex::bf16;
using imbrex::decode_partial;
using imbrex::tensor;
using imbrex::tensor_of;
using imbrex::tensor_use;

// Heads of keys that a kernel attends to together.
template <class Kernel>
constexpr int heads_of_unit() {
    if constexpr (requires { Kernel::unit_heads; }) {
        return Kernel::unit_heads;
    } else {
        return 1;
    }
}

// Three sequences of four heads for each head of keys, in pages of 16 rows.
template <class Kernel, int Depth>
struct small_cache {
    static constexpr int key_heads = heads_of_unit<Kernel>(), heads = 4 * key_heads, page_rows = 16;
    using stored = typename Kernel::key_tile::element;
    static constexpr bool has_workspace = requires { typename Kernel::consumers; };
    int tokens, blocks, per_sequence;
    std::vector<int> lengths;
    buffer<bf16> q, out;
    buffer<stored> k, v;
    buffer<float> log2_sums;
    buffer<int> key_lengths, table;
    buffer<int> workspace;

    small_cache(world where, int tokens, int blocks, int longest = 300)
        : tokens(tokens),
          blocks(blocks),
          per_sequence((longest + page_rows - 1) / page_rows),
          lengths{longest, 20, 0},
          q(where, lengths.size() * tokens * heads * Depth),
          out(where, q.values.size(), bf16(NAN)),
          k(where, (per_sequence + 6) * page_rows * key_heads * Depth, stored(NAN)),
          v(where, k.values.size(), stored(NAN)),
          log2_sums(where, lengths.size() * heads * tokens, NAN),
          key_lengths(where, lengths.size()),
          table(where, lengths.size() * per_sequence, -1),
          workspace(where, words_of_workspace(blocks), 0) {
        fill_random(q.values, 1);
        int page = per_sequence + 5;
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            key_lengths.values[i] = lengths[i];
            for (int key = 0; key < lengths[i]; ++key) {
                int& number = table.values[i * per_sequence + key / page_rows];
                if (key % page_rows == 0) number = page--;
                for (int column = 0; column < key_heads * Depth; ++column) {
                    const std::size_t place = place_of(int(i), key) + column;
                    k.values[place] = stored(float((key * 7 + column * 3) % 23 - 11) / 11);
                    v.values[place] = stored(float((key * 5 + column * 11) % 19 - 9) / 9);
                }
            }
        }
    }

    // Of the first head of keys; the others' are beside it.
    std::size_t place_of(int batch, int key) const {
        const int page = table.values[std::size_t(batch) * per_sequence + key / page_rows];
        return (std::size_t(page) * page_rows + key % page_rows) * key_heads * Depth;
    }

    typename Kernel::arguments send() {
        typename Kernel::arguments args{};
        const int batches = int(lengths.size()), pages = per_sequence + 6;
        give(args.k, batch_sequence_head<const stored>(k.send(), pages, page_rows, key_heads, Depth));
        give(args.v, batch_sequence_head<const stored>(v.send(), pages, page_rows, key_heads, Depth));
        args.q = batch_sequence_head<const bf16>(q.send(), batches, tokens, heads, Depth);
        args.results.out = batch_sequence_head(out.send(), batches, tokens, heads, Depth);
        args.results.outputs.log2_sums = batch_head_rows(log2_sums.send(), heads, tokens);
        args.scale = 0.25f;
        args.lengths = {{tokens, per_sequence * page_rows, key_lengths.send()}, table.send(), per_sequence, page_rows};
        args.sizes.batches = batches;
        args.sizes.key_heads = key_heads;
        args.sizes.heads_per_key_head = imbrex::known_divisor(heads / key_heads);
        args.sizes.least_steps = 1;
        args.sizes.more_steps = blocks % 2 == 0 ? 3 : 0;
        args.sizes.multiple = blocks % 3 == 0 ? 4 : 1;
        if constexpr (has_workspace) {
            args.sizes.part_slices = Kernel::consumers::slices;
            args.counters = workspace.send();
            args.partials = reinterpret_cast<decode_partial*>(reinterpret_cast<char*>(args.counters) +
                                                              Kernel::consumers::counters_bytes(blocks));
        }
        return args;
    }
    static std::size_t words_of_workspace(int blocks) {
        if constexpr (has_workspace) {
            return Kernel::consumers::workspace_bytes(blocks) / sizeof(int);
        } else {
            return 0;
        }
    }

    // A cache as the kernel takes it.
    template <class Tile>
    static void give(tensor<Tile, 4>& to, const attention_view<const stored>& cache) {
        to = tensor_of<Tile>(cache, tensor_use::load, page_rows);
    }
    static void give(attention_view<const stored>& to, const attention_view<const stored>& cache) { to = cache; }

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
        const auto place = [&](int key) { return place_of(batch, key) + head / (heads / key_heads) * Depth; };
        std::vector<double> expected(Depth);
        double sum = 0;
        for (int key = 0; key < seen; ++key) {
            double dot = 0;
            for (int i = 0; i < Depth; ++i) {
                dot += double(float(q.values[row + i])) * float(k.values[place(key) + i]);
            }
            const double weight = std::exp(dot * 0.25);
            sum += weight;
            for (int i = 0; i < Depth; ++i) expected[i] += weight * float(v.values[place(key) + i]);
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

// A grid of 1 has no parts; one of many has parts of many blocks.
template <class Kernel, int Depth>
void check_results(int tokens, const std::vector<int>& grids = {1, 3, 40}) {
    for (const world where : worlds()) {
        for (const int blocks : grids) {
            CAPTURE(name_of(where));
            CAPTURE(blocks);
            small_cache<Kernel, Depth> there(where, tokens, blocks);
            run<Kernel>(where, {blocks}, there.send(), 2);
            there.check();
        }
    }
}

#if !defined(__CUDACC__)
template <class Kernel, int Depth>
void check_synchronisation(int tokens, int blocks, int schedules, int longest = 300) {
    small_cache<Kernel, Depth> there(world::host, tokens, blocks, longest);
    const auto args = there.send();
    check_synchronisation<Kernel>("decode", {blocks}, args, schedules);
}
#endif

}  // namespace imbrex_test
