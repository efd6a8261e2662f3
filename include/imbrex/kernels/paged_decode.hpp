// Attention of a few new tokens of each sequence to a cache of keys and values in pages, in one launch:
//
//     using decode = paged_decode<bf16, causal_mask>;
//     attention_problem<bf16> p{.q = batch_sequence_head(q, sequences, tokens, heads, depth),
//                               .k = batch_sequence_head(k_cache, pages, page_rows, key_heads, depth),
//                               .v = batch_sequence_head(v_cache, pages, page_rows, key_heads, depth),
//                               .out = batch_sequence_head(out, sequences, tokens, heads, depth),
//                               .key_lengths = lengths,
//                               .pages = {.table = table, .pages_per_sequence = width}};
//     decode::launch(world::device, p, {.workspace = workspace}, {}, {}, stream);
//
// The problem is stated as an attention's with keys in pages (attention/problem.hpp); key_lengths count the new tokens, whose keys
// are in the cache already. Lengths and table are read by the kernel when it runs, and nothing is allocated or waited for: a launch
// can be captured in a CUDA graph and replayed with other lengths and tables. However the lengths differ, all multiprocessors
// have the same to read. Results have the same bits every time. What is refused is refused before anything is launched.
//
// A prefix that many sequences share is read once if it is attended to by a launch of its own, in which the tokens of all of them
// are those of one sequence, under a full mask; its partial result is given to the launch over their own pages as `before`.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/ampere.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode/choice.hpp>
#include <imbrex/kernels/paged_decode/hopper.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>

namespace imbrex {

// What a launch needs beside its problem.
struct decode_options {
    // As many bytes as paged_decode::workspace_bytes says, in the memory of the kernel's world: zero before the first launch, and
    // then left to the launches. Those at the same time need one each.
    void* workspace = nullptr;
    // The partial result of a launch over other keys, for the same rows, with which this one's is put together: wide, largest, sums.
    attention_outputs before = {};
    // Lengths, table, and what the cache has of all but the new tokens are not written by kernels of the stream that may still run:
    // they are read while those end.
    bool early = false;
    int blocks = 0;  // of the grid; 0: one for each multiprocessor
};

template <class In, class Mask = causal_mask, class Score = plain_score,
          attention_result Result = attention_result::normalised, class Depths = all_decode_depths>
class paged_decode {
    static_assert(Result != attention_result::merged,
                  "imbrex: a decode is merged with what options.before names, into a normalised or partial result");

  public:
    using problem = attention_problem<In, Result>;

    static decode_kernel choice(world where, const problem& p) {
        require_attention(where, p, attention_keys::in_pages);
        decode_kernel chosen{};
        for_depth(p, [&]<int Depth>() { chosen = choose<Depth>(where, p); });
        return chosen;
    }

    // It does not depend on the lengths, nor on how many sequences there are. `blocks` as in the options.
    static std::size_t workspace_bytes(world where, const problem& p, int blocks = 0) {
        require_attention(where, p, attention_keys::in_pages);
        std::size_t bytes = 0;
        for_depth(p, [&]<int Depth>() {
            for_hopper<Depth>(
                p, [&]<class Kernel>() { bytes = Kernel::consumers::workspace_bytes(blocks_of(where, blocks)); });
        });
        return bytes;
    }

    static void launch(world where, const problem& p, const decode_options& options, const Mask& mask = {},
                       const Score& score = {}, void* stream = nullptr) {
        require_attention(where, p, attention_keys::in_pages);
        for_depth(p, [&]<int Depth>() {
            if (p.empty()) return;
            if (choose<Depth>(where, p) == decode_kernel::hopper) {
                for_hopper<Depth>(
                    p, [&]<class Kernel>() { launch_hopper<Kernel>(where, p, options, mask, score, stream); });
            } else {
                launch_ampere<Depth>(where, p, options, mask, score, stream);
            }
        });
    }

  private:
    template <int Depth, int Groups>
    using hopper = paged_decode_hopper<In, Depth, Mask, Score, decode_shape_for(Depth, Groups), Result>;
    template <int Depth>
    using ampere = attention_ampere<In, Depth, Depth, Mask, Score,
                                    attention_ampere_shape_for(Depth, Depth, score_changes_nothing<Score>()), Result,
                                    paged_lengths>;

    static int blocks_of(world where, int wanted) { return wanted > 0 ? wanted : processors_of(where); }

    template <class Call>
    static void for_depth(const problem& p, const Call& call) {
        const int depth = p.key_depth() > p.value_depth() ? p.key_depth() : p.value_depth();
        require(Depths::visit(depth, call), "q.extents[3], v.extents[3]: ", p.key_depth(), ", ", p.value_depth(),
                "; this decode has kernels of ", Depths::text());
    }
    template <int Depth, class Call>
    static void for_hopper(const problem& p, const Call& call) {
        const std::int64_t sequences = p.packed.given() && p.packed.count > 0 ? p.packed.count : 1;
        const std::int64_t rows = std::int64_t{p.queries()} * p.heads() / (p.key_heads() * sequences);
        if (decode_groups_for(rows) == 1) {
            call.template operator()<hopper<Depth, 1>>();
        } else {
            call.template operator()<hopper<Depth, 4>>();
        }
    }

    template <int Depth>
    static decode_kernel choose(world where, const problem& p) {
        const bool can_copy =
            engine_can_copy(p.q) && engine_can_copy(p.k) && engine_can_copy(p.v) && engine_can_copy(p.out);
        return choose_decode(
            {can_run<hopper<Depth, 1>>(where), can_copy, p.k.extents[0] == 0 ? 0 : p.keys(attention_keys::in_pages)});
    }
    static paged_lengths lengths_of(const problem& p) {
        paged_lengths made{};
        made.queries = p.queries();
        made.keys = p.keys(attention_keys::in_pages);
        made.key_lengths = p.key_lengths;
        made.query_starts = p.packed.query_starts;
        made.table = p.pages.table;
        made.pages_per_sequence = p.pages.pages_per_sequence;
        made.page_rows = p.k.rows();
        return made;
    }
    static attention_outputs outputs_of(const problem& p) {
        attention_outputs made{};
        made.log2_sums = p.log2_sums;
        made.largest = p.largest;
        made.sums = p.sums;
        if constexpr (Result != attention_result::normalised) made.wide = p.out;
        return made;
    }

    template <class Kernel>
    static void launch_hopper(world where, const problem& p, const decode_options& options, const Mask& mask,
                              const Score& score, void* stream) {
        const int blocks = blocks_of(where, options.blocks);
        const auto address = reinterpret_cast<std::uintptr_t>(options.workspace);
        require(address != 0 && address % alignof(decode_partial) == 0, "options.workspace: ", options.workspace, "; ",
                Kernel::consumers::workspace_bytes(blocks), " bytes at a multiple of ", alignof(decode_partial),
                " are needed");
        // If all sequences were as long as there is room for.
        const std::int64_t rows = std::int64_t{p.queries()} * (p.heads() / p.key_heads());
        const std::int64_t row_blocks = p.packed.given() ? rows / Kernel::rows + p.packed.count
                                                         : (rows + Kernel::rows - 1) / Kernel::rows * p.batches();
        const std::int64_t in_unit =
            (std::int64_t{p.keys(attention_keys::in_pages)} + decode_more_keys) / Kernel::columns + 1;
        const std::int64_t steps = row_blocks * p.key_heads() * in_unit;
        require(steps <= 2147483647, "pages.pages_per_sequence: ", p.pages.pages_per_sequence, "; there is room for ",
                steps, " tiles of ", Kernel::columns, " keys, and at most 2147483647 are allowed");
        typename Kernel::arguments made{};
        const int part = std::gcd(p.k.rows(), Kernel::columns);
        made.k = tensor_of<typename Kernel::key_tile>(for_engine(p.k), tensor_use::load, part);
        made.v = tensor_of<typename Kernel::key_tile>(for_engine(p.v), tensor_use::load, part);
        made.q = p.q;
        if constexpr (Result == attention_result::normalised) made.results.out = p.out;
        made.results.outputs = outputs_of(p);
        made.results.before = options.before;
        made.results.sinks = p.sinks;
        made.mask = mask;
        made.score = score;
        made.scale = p.scale_used();
        made.lengths = lengths_of(p);
        const bool many = std::int64_t{p.batches()} * p.key_heads() > std::int64_t{2} * blocks;
        made.sizes = {p.batches(), p.key_heads(), p.heads() / p.key_heads(), decode_least_keys / Kernel::columns,
                      many ? decode_more_keys / Kernel::columns : 0};
        made.early = options.early;
        made.counters = static_cast<int*>(options.workspace);
        made.partials = reinterpret_cast<decode_partial*>(static_cast<char*>(options.workspace) +
                                                          Kernel::consumers::counters_bytes(blocks));
        imbrex::launch<Kernel>(where, {blocks}, made, stream);
    }

    // The attention of all other devices and distances: not split over the keys, but right.
    template <int Depth>
    static void launch_ampere(world where, const problem& p, const decode_options& options, const Mask& mask,
                              const Score& score, void* stream) {
        using kernel = ampere<Depth>;
        require(can_run<kernel>(where), "world: ", name_of(where),
                "; the program has no decode kernel for this device, or none for tensors that the copy engine cannot "
                "read, the distances in which are not multiples of 16 bytes");
        require(options.before.wide.pointer == nullptr, "options.before: ", options.before.wide.pointer,
                "; only the kernel for Hopper puts results together, it must be empty");
        typename kernel::arguments made{};
        made.q = p.q;
        made.k = p.k;
        made.v = p.v;
        if constexpr (Result == attention_result::normalised) made.out = p.out;
        made.outputs = outputs_of(p);
        made.mask = mask;
        made.score = score;
        made.scale = p.scale_used();
        made.factor = factor_after(score, made.scale);
        made.lengths = lengths_of(p);
        made.heads_per_key_head = p.heads() / p.key_heads();
        made.sinks = p.sinks;
        const int blocks = p.packed.given() ? attention_order::packed_blocks(p.queries(), p.packed.count, kernel::rows)
                                            : (p.queries() + kernel::rows - 1) / kernel::rows;
        made.order = {p.batches(), p.heads(), blocks, 0};
        imbrex::launch<kernel>(where, {made.order.total(made.lengths)}, made, stream);
    }
};

}  // namespace imbrex
