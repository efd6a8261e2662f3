// A small paged KV cache for a decode kernel that is launched without its launcher, and the checks that every such
// kernel must pass: correct results in grids of any size, no hazard in any schedule, every mutation of its
// synchronisation detected.
#pragma once

#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/consumer.hpp>
#include <imbrex/tile/tma_tensor.hpp>

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
using imbrex::decode_workspace_slice;
using imbrex::make_tma_tensor;
using imbrex::tma_tensor;
using imbrex::tma_use;

// KV heads of a work item.
template <class Kernel>
constexpr int kv_heads_of_item() {
    if constexpr (requires { Kernel::kv_heads_per_item; }) {
        return Kernel::kv_heads_per_item;
    } else {
        return 1;
    }
}

// Three sequences, q_heads_per_kv_head = 4, pages of 16 rows.
template <class Kernel, int HeadDim>
struct small_cache {
    static constexpr int kv_heads = kv_heads_of_item<Kernel>(), heads = 4 * kv_heads, page_size = 16;
    using stored = typename Kernel::key_tile::element;
    static constexpr bool has_workspace = requires { typename Kernel::consumers; };
    int tokens, blocks, per_sequence;
    std::vector<int> lengths;
    buffer<bf16> q, out;
    buffer<stored> k, v;
    buffer<float> lse2;
    buffer<int> seqused_k, table;
    buffer<int> workspace;

    small_cache(world where, int tokens, int blocks, int longest = 300)
        : tokens(tokens),
          blocks(blocks),
          per_sequence((longest + page_size - 1) / page_size),
          lengths{longest, 20, 0},
          q(where, lengths.size() * tokens * heads * HeadDim),
          out(where, q.values.size(), bf16(NAN)),
          k(where, (per_sequence + 6) * page_size * kv_heads * HeadDim, stored(NAN)),
          v(where, k.values.size(), stored(NAN)),
          lse2(where, lengths.size() * heads * tokens, NAN),
          seqused_k(where, lengths.size()),
          table(where, lengths.size() * per_sequence, -1),
          workspace(where, workspace_words(blocks), 0) {
        fill_random(q.values, 1);
        int page = per_sequence + 5;
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            seqused_k.values[i] = lengths[i];
            for (int key = 0; key < lengths[i]; ++key) {
                int& number = table.values[i * per_sequence + key / page_size];
                if (key % page_size == 0) number = page--;
                for (int column = 0; column < kv_heads * HeadDim; ++column) {
                    const std::size_t place = place_of(int(i), key) + column;
                    k.values[place] = stored(float((key * 7 + column * 3) % 23 - 11) / 11);
                    v.values[place] = stored(float((key * 5 + column * 11) % 19 - 9) / 9);
                }
            }
        }
    }

    // Output of the first KV head; the others follow it.
    std::size_t place_of(int batch, int key) const {
        const int page = table.values[std::size_t(batch) * per_sequence + key / page_size];
        return (std::size_t(page) * page_size + key % page_size) * kv_heads * HeadDim;
    }

    typename Kernel::arguments upload() {
        typename Kernel::arguments args{};
        const int batches = int(lengths.size()), pages = per_sequence + 6;
        set_cache(args.k, batch_sequence_head<const stored>(k.upload(), pages, page_size, kv_heads, HeadDim));
        set_cache(args.v, batch_sequence_head<const stored>(v.upload(), pages, page_size, kv_heads, HeadDim));
        args.q = batch_sequence_head<const bf16>(q.upload(), batches, tokens, heads, HeadDim);
        args.results.out = batch_sequence_head(out.upload(), batches, tokens, heads, HeadDim);
        args.results.outputs.lse2 = batch_head_rows(lse2.upload(), heads, tokens);
        args.scale = 0.25f;
        args.lengths = {
            {tokens, per_sequence * page_size, seqused_k.upload()}, table.upload(), per_sequence, page_size};
        args.schedule.batches = batches;
        args.schedule.kv_heads = kv_heads;
        args.schedule.q_heads_per_kv_head = imbrex::fast_divmod(heads / kv_heads);
        args.schedule.min_tiles_per_block = 1;
        args.schedule.overhead_tiles = blocks % 2 == 0 ? 3 : 0;
        args.schedule.tile_multiple = blocks % 3 == 0 ? 4 : 1;
        if constexpr (has_workspace) {
            args.schedule.slices_per_split = Kernel::consumers::slices;
            args.counters = workspace.upload();
            args.partials = reinterpret_cast<decode_workspace_slice*>(reinterpret_cast<char*>(args.counters) +
                                                                      Kernel::consumers::counters_bytes(blocks));
        }
        return args;
    }
    static std::size_t workspace_words(int blocks) {
        if constexpr (has_workspace) {
            return Kernel::consumers::workspace_bytes(blocks) / sizeof(int);
        } else {
            return 0;
        }
    }

    // The cache as the kernel takes it.
    template <class Tile>
    static void set_cache(tma_tensor<Tile, 4>& to, const attention_view<const stored>& cache) {
        to = make_tma_tensor<Tile>(cache, tma_use::load, page_size);
    }
    static void set_cache(attention_view<const stored>& to, const attention_view<const stored>& cache) { to = cache; }

    void check() {
        out.download();
        lse2.download();
        double worst = 0;
        for (int batch = 0; batch < int(lengths.size()); ++batch) {
            for (int head = 0; head < heads; ++head) {
                for (int token = 0; token < tokens; ++token) check_row(batch, head, token, worst);
            }
        }
        CHECK(worst <= 0.01);
    }
    void check_row(int batch, int head, int token, double& worst) {
        const std::size_t row = ((std::size_t(batch) * tokens + token) * heads + head) * HeadDim;
        const int seen = std::max(0, lengths[batch] - tokens + token + 1);
        const auto place = [&](int key) { return place_of(batch, key) + head / (heads / kv_heads) * HeadDim; };
        std::vector<double> expected(HeadDim);
        double sum = 0;
        for (int key = 0; key < seen; ++key) {
            double dot = 0;
            for (int i = 0; i < HeadDim; ++i) {
                dot += double(float(q.values[row + i])) * float(k.values[place(key) + i]);
            }
            const double weight = std::exp(dot * 0.25);
            sum += weight;
            for (int i = 0; i < HeadDim; ++i) expected[i] += weight * float(v.values[place(key) + i]);
        }
        for (int i = 0; i < HeadDim; ++i) {
            worst = std::max(worst, std::abs(float(out.values[row + i]) - (seen > 0 ? expected[i] / sum : 0)));
            if (std::isnan(float(out.values[row + i]))) worst = INFINITY;
        }
        const float found = lse2.values[(std::size_t(batch) * heads + head) * tokens + token];
        const bool right = seen > 0 ? std::abs(found - std::log2(sum)) <= 0.001 : found == -INFINITY;
        if (!right) worst = INFINITY;
    }
};

// A grid of 1 has one split per work item; a large grid has many.
template <class Kernel, int HeadDim>
void check_results(int tokens, const std::vector<int>& grids = {1, 3, 40}) {
    for (const world where : worlds()) {
        for (const int blocks : grids) {
            CAPTURE(name_of(where));
            CAPTURE(blocks);
            small_cache<Kernel, HeadDim> there(where, tokens, blocks);
            run<Kernel>(where, {blocks}, there.upload(), 2);
            there.check();
        }
    }
}

#if !defined(__CUDACC__)
template <class Kernel, int HeadDim>
void check_synchronisation(int tokens, int blocks, int schedules, int longest = 300) {
    small_cache<Kernel, HeadDim> there(world::host, tokens, blocks, longest);
    const auto args = there.upload();
    check_synchronisation<Kernel>("decode", {blocks}, args, schedules);
}
#endif

}  // namespace imbrex_test
