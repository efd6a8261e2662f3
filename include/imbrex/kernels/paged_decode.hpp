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
// The cache is of the type of the queries, or of e4m3 or int8, which appending has written with scales (paged_cache/scales.hpp); the same
// are given here:
//
//     using decode = paged_decode<bf16, causal_mask, plain_score, attention_result::normalised, all_decode_depths, e4m3>;
//     decode::problem p{.., .k_scales = scales_of_heads(k_scales), .v_scales = scales_of_heads(v_scales)};
//
// A prefix that many sequences share is read once if it is attended to by a launch of its own, in which the tokens of all of them
// are those of one sequence, under a full mask; its partial result is given to the launch over their own pages as `before`.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/known_divisor.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode/ampere.hpp>
#include <imbrex/kernels/paged_decode/choice.hpp>
#include <imbrex/kernels/paged_decode/cluster.hpp>
#include <imbrex/kernels/paged_decode/heads.hpp>
#include <imbrex/kernels/paged_decode/hopper.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <type_traits>

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
    // How many keys all sequences have together, about, if that is known: where there are many, another kernel is chosen. (0: it is not.)
    std::int64_t keys = 0;
    // Each sequence is cut every so many keys, a multiple of 64, from its first on, and the parts are put together in their order.
    // The bits of its result then depend on its own keys and queries alone: not on other sequences, nor on how many there are, nor
    // on the grid or the size of pages; and a token's not on how many are attended to with it, if the mask hides later keys alone
    // and no scales are those of pages. One kernel does that, for 16 rows at a time. 0: cut so that all blocks of the grid have the
    // same to read.
    int keys_in_a_part = 0;
    int blocks = 0;  // of the grid; 0: one for each multiprocessor, or as the kernel has room for them
    std::optional<decode_kernel> kernel = {};  // if it is not to be chosen
};

inline namespace IMBREX_WORLDS {

template <class In, class Mask = causal_mask, class Score = plain_score,
          attention_result Result = attention_result::normalised, class Depths = all_decode_depths, class Cache = In>
class paged_decode {
    static_assert(Result != attention_result::merged,
                  "imbrex: a decode is merged with what options.before names, into a normalised or partial result");

  public:
    using problem = attention_problem<In, Result, Cache>;

    static decode_kernel choice(world where, const problem& p, const decode_options& options = {}) {
        require_attention(where, p, attention_keys::in_pages);
        decode_kernel chosen{};
        for_depth(p, [&]<int Depth>() { chosen = choose_decode(situation<Depth>(where, p, options)); });
        return chosen;
    }
    // Whether a kernel that attends to several heads of keys together can be asked for.
    static bool can_together(world where, const problem& p, decode_kernel one, const decode_options& options = {}) {
        require_attention(where, p, attention_keys::in_pages);
        bool can = false;
        for_depth(p, [&]<int Depth>() {
            can = decode_heads_of(one) > 1 &&
                  decode_units_together(situation<Depth>(where, p, options), decode_heads_of(one)) > 0;
        });
        return can;
    }

    // It does not depend on the lengths, nor on how many sequences there are; but with keys_in_a_part it grows with their number
    // and the room that their pages have. `blocks` and `keys_in_a_part` as in the options.
    static std::size_t workspace_bytes(world where, const problem& p, int blocks = 0, int keys_in_a_part = 0) {
        require_attention(where, p, attention_keys::in_pages);
        std::size_t bytes = 0;
        for_depth(p, [&]<int Depth>() {
            // The most that any of the kernels needs.
            for_kernel<Depth>(p, keys_in_a_part, decode_kernel::ampere_class,
                              [&]<class Kernel>() { bytes = bytes_of<Kernel>(where, p, blocks, keys_in_a_part); });
            for (const int together : {8, 4, 2}) {
                if (keys_in_a_part > 0) continue;
                for_heads<Depth>(
                    together, [&]<class Kernel>() { bytes = std::max(bytes, bytes_of<Kernel>(where, p, blocks, 0)); });
            }
        });
        return bytes;
    }

    static void launch(world where, const problem& p, const decode_options& options, const Mask& mask = {},
                       const Score& score = {}, void* stream = nullptr) {
        require_attention(where, p, attention_keys::in_pages);
        for_depth(p, [&]<int Depth>() {
            if (p.empty()) return;
            const decode_situation now = situation<Depth>(where, p, options);
            const decode_kernel kernel = options.kernel.value_or(choose_decode(now));
            require(kernel == decode_kernel::ampere_class || can_decode_on_hopper(now),
                    "options.kernel: ", name_of(kernel), "; this problem takes ", name_of(decode_kernel::ampere_class));
            const bool cuts = kernel == decode_kernel::hopper || kernel == decode_kernel::ampere_class;
            require(cuts || options.keys_in_a_part == 0, "options.kernel: ", name_of(kernel),
                    "; with options.keys_in_a_part it is hopper or ampere_class");
            if (const int together = decode_heads_of(kernel); together > 1) {
                require(decode_units_together(now, together) > 0, "options.kernel: ", name_of(kernel),
                        "; it takes a multiple of ", together, " heads of keys, up to ", decode_most_depth_of_heads,
                        " columns and ", decode_most_rows_of_heads, " rows of queries that share keys",
                        together < 8 ? ", of a cache of 8 bits" : "");
                for_heads<Depth>(
                    together, [&]<class Kernel>() { launch_kernel<Kernel>(where, p, options, mask, score, stream); });
                return;
            }
            if constexpr (sizeof(Cache) == 2) {
                if (kernel == decode_kernel::cluster) {
                    return launch_clusters<Depth>(where, p, options, mask, score, stream);
                }
            }
            require(kernel != decode_kernel::cluster, "options.kernel: ", name_of(kernel), "; a cache of 8 bits takes ",
                    name_of(decode_kernel::hopper));
            for_kernel<Depth>(p, options.keys_in_a_part, kernel,
                              [&]<class Kernel>() { launch_kernel<Kernel>(where, p, options, mask, score, stream); });
        });
    }

  private:
    template <int Depth, int Groups>
    using hopper =
        paged_decode_hopper<In, Depth, Mask, Score, decode_shape_for(Depth, Groups, sizeof(Cache)), Result, Cache>;
    template <int Depth, int Groups>
    using ampere = paged_decode_ampere<In, Depth, Mask, Score, decode_ampere_shape_for(Depth, Groups, sizeof(Cache)),
                                       Result, Cache>;

    template <int Depth, int Together>
    using heads = paged_decode_heads<In, Depth, Mask, Score, decode_heads_shape_for(Depth, sizeof(Cache), Together),
                                     Result, Cache>;

    // Of a kernel's grid, and of the largest.
    template <class Kernel>
    static int blocks_of(world where, int wanted, std::int64_t units) {
        return wanted > 0 ? wanted : decode_blocks_for(processors_of(where) * hw::residents_of<Kernel>, units);
    }
    static int most_blocks(world where, int wanted) {
        return wanted > 0 ? wanted : processors_of(where) * decode_residents;
    }

    template <class Call>
    static void for_depth(const problem& p, const Call& call) {
        const int depth = p.key_depth() > p.value_depth() ? p.key_depth() : p.value_depth();
        require(Depths::visit(depth, call), "q.extents[3], v.extents[3]: ", p.key_depth(), ", ", p.value_depth(),
                "; this decode has kernels of ", Depths::text());
    }
    // That share keys, of a sequence, on average.
    static std::int64_t rows_of(const problem& p) {
        const std::int64_t sequences = p.packed.given() && p.packed.count > 0 ? p.packed.count : 1;
        return std::int64_t{p.queries()} * p.heads() / (p.key_heads() * sequences);
    }
    template <int Depth, class Call>
    static void for_kernel(const problem& p, int keys_in_a_part, decode_kernel chosen, const Call& call) {
        require(keys_in_a_part >= 0 && keys_in_a_part % decode_part_step == 0,
                "options.keys_in_a_part: ", keys_in_a_part, "; a multiple of ", decode_part_step, ", or 0, is needed");
        const bool one_group = keys_in_a_part > 0 || decode_groups_for(rows_of(p)) == 1;
        if (chosen == decode_kernel::hopper && one_group) {
            call.template operator()<hopper<Depth, 1>>();
        } else if (chosen == decode_kernel::hopper) {
            call.template operator()<hopper<Depth, 4>>();
        } else if (one_group) {
            call.template operator()<ampere<Depth, 1>>();
        } else {
            call.template operator()<ampere<Depth, 4>>();
        }
    }

    // The kernel that attends to so many heads together, if there is one.
    template <int Depth, class Call>
    static void for_heads(int together, const Call& call) {
        if constexpr (decode_can_share(Depth, 8)) {
            if (together == 8) call.template operator()<heads<Depth, 8>>();
        }
        if constexpr (decode_can_share(Depth, 4) && sizeof(Cache) == 1) {
            if (together == 4) call.template operator()<heads<Depth, 4>>();
        }
        if constexpr (decode_can_share(Depth, 2) && sizeof(Cache) == 1) {
            if (together == 2) call.template operator()<heads<Depth, 2>>();
        }
    }

    template <int Depth>
    static decode_situation situation(world where, const problem& p, const decode_options& options) {
        const bool can_copy =
            engine_can_copy(p.q) && engine_can_copy(p.k) && engine_can_copy(p.v) && engine_can_copy(p.out);
        const bool has_pages = p.k.extents[0] > 0 && p.keys(attention_keys::in_pages) > 0;
        const std::int64_t sequences = p.packed.given() ? p.packed.count : p.batches();
        const std::int64_t key_bytes = std::int64_t{p.key_heads()} * (p.key_depth() + p.value_depth()) * sizeof(Cache);
        const bool cut = options.keys_in_a_part != 0;
        const bool in_clusters = !cut && options.blocks == 0 && decode_groups_for(rows_of(p)) == 1;
        return {.hopper = can_run<hopper<Depth, 1>>(where),
                .engine_can_copy = can_copy,
                .has_pages = has_pages,
                .element_bytes = sizeof(Cache),
                .sequences = sequences,
                .keys = cut ? 0 : options.keys,
                .key_bytes = key_bytes,
                .clusters = in_clusters ? sequences * p.key_heads() : 0,
                .most_keys = p.keys(attention_keys::in_pages),
                .depth = Depth,
                .key_heads = p.key_heads(),
                .whole = !cut,
                .few_rows = rows_of(p) <= decode_most_rows_of_heads,
                .blocks = options.blocks > 0 ? options.blocks : processors_of(where)};
    }
    static attention_outputs outputs_of(const problem& p) {
        attention_outputs made{};
        made.log2_sums = p.log2_sums;
        made.largest = p.largest;
        made.sums = p.sums;
        if constexpr (Result != attention_result::normalised) made.wide = p.out;
        return made;
    }

    // Rows of all sequences that share keys, in blocks as a kernel's units have them: as many, or a few more.
    template <class Kernel>
    static std::int64_t row_blocks_of(const problem& p) {
        const std::int64_t rows = std::int64_t{p.queries()} * (p.heads() / p.key_heads());
        return p.packed.given() ? rows / Kernel::rows + p.packed.count
                                : (rows + Kernel::rows - 1) / Kernel::rows * p.batches();
    }
    // Of a unit that is cut every so many keys, if its sequence is as long as there is room for.
    static std::int64_t most_parts_of(const problem& p, int keys_in_a_part) {
        const std::int64_t keys = p.keys(attention_keys::in_pages);
        return std::max<std::int64_t>((keys + keys_in_a_part - 1) / keys_in_a_part, 1);
    }
    template <class Kernel>
    static int part_slices_of(const problem& p) {
        const std::int64_t rows = std::int64_t{p.queries()} * (p.heads() / p.key_heads());
        return p.packed.given() ? Kernel::consumers::slices : Kernel::consumers::slices_for(rows);
    }
    template <class Kernel>
    static std::size_t bytes_of(world where, const problem& p, int blocks, int keys_in_a_part) {
        using consumers = typename Kernel::consumers;
        const int most = most_blocks(where, blocks);
        if (keys_in_a_part == 0) {
            return consumers::workspace_bytes(
                most, std::int64_t{2} * blocks_of<Kernel>(where, blocks, 0) * consumers::slices);
        }
        const std::int64_t units = p.empty() ? 0 : row_blocks_of<Kernel>(p) * p.key_heads();
        return consumers::workspace_bytes(most, units * most_parts_of(p, keys_in_a_part) * part_slices_of<Kernel>(p));
    }

    // The cache, as a kernel takes it: for the copy engine, or for its threads.
    template <class Kernel, class Tile>
    static void give(tensor<Tile, 4>& to, const attention_view<const Cache>& view) {
        to = tensor_of<Tile>(for_engine(view), tensor_use::load, std::gcd(view.rows(), Tile::rows));
    }
    template <class Kernel>
    static void give(attention_view<const Cache>& to, const attention_view<const Cache>& view) {
        to = view;
    }

    // All but who does what.
    template <class Kernel>
    static typename Kernel::arguments describe(const problem& p, const decode_options& options, const Mask& mask,
                                               const Score& score) {
        typename Kernel::arguments made{};
        give<Kernel>(made.k, p.k);
        give<Kernel>(made.v, p.v);
        made.q = p.q;
        if constexpr (Result == attention_result::normalised) made.results.out = p.out;
        made.results.outputs = outputs_of(p);
        made.results.before = options.before;
        made.results.sinks = p.sinks;
        made.mask = mask;
        made.score = score;
        made.scale = p.scale_used();
        made.lengths = paged_lengths_of(p);
        made.sizes.batches = p.batches();
        made.sizes.key_heads = p.key_heads();
        made.sizes.heads_per_key_head = known_divisor(p.heads() / p.key_heads());
        made.k_scales = p.k_scales;
        made.v_scales = p.v_scales;
        if constexpr (hw::begins_early<Kernel>) made.early = options.early;
        return made;
    }

    template <int Depth>
    static void launch_clusters(world where, const problem& p, const decode_options& options, const Mask& mask,
                                const Score& score, void* stream) {
        using kernel = paged_decode_cluster<In, Depth, Mask, Score, Result>;
        imbrex::launch<kernel>(where, {kernel::blocks_of(p.batches(), p.key_heads())},
                               describe<kernel>(p, options, mask, score), stream);
    }

    template <class Kernel>
    static void launch_kernel(world where, const problem& p, const decode_options& options, const Mask& mask,
                              const Score& score, void* stream) {
        require(can_run<Kernel>(where), "world: ", name_of(where),
                "; the program has no decode kernel for this device");
        const auto address = reinterpret_cast<std::uintptr_t>(options.workspace);
        require(address != 0 && address % alignof(decode_partial) == 0, "options.workspace: ", options.workspace, "; ",
                workspace_bytes(where, p, options.blocks, options.keys_in_a_part), " bytes at a multiple of ",
                alignof(decode_partial), " are needed");
        // If all sequences were as long as there is room for.
        const std::int64_t row_blocks = row_blocks_of<Kernel>(p);
        const int head_units = p.key_heads() / Kernel::unit_heads;
        const std::int64_t units = (p.packed.given() ? p.packed.count : row_blocks) * head_units;
        constexpr int as_long = 2 / sizeof(Cache);  // so many keys take as long as one of 16-bit elements
        const std::int64_t in_unit =
            (std::int64_t{p.keys(attention_keys::in_pages)} + as_long * decode_more_keys(Kernel::unit_heads)) /
                Kernel::columns +
            1;
        const std::int64_t steps = row_blocks * head_units * in_unit;
        require(steps <= 2147483647, "pages.pages_per_sequence: ", p.pages.pages_per_sequence, "; there is room for ",
                steps, " tiles of ", Kernel::columns, " keys, and at most 2147483647 are allowed");
        // Blocks that could never have anything to do would only keep multiprocessors from the next kernel.
        const bool cut = options.keys_in_a_part > 0;
        constexpr int step_keys = Kernel::columns * Kernel::unit_heads;  // of all heads
        const int least_steps = cut ? 1 : std::max(as_long * decode_least_keys(p.value_depth()) / step_keys, 1);
        const std::int64_t parts = cut ? most_parts_of(p, options.keys_in_a_part)
                                       : std::max<std::int64_t>((in_unit + least_steps - 2) / least_steps, 1);
        const std::int64_t useful = row_blocks * head_units * parts;
        const int most = blocks_of<Kernel>(where, options.blocks, units);
        const int blocks = static_cast<int>(std::clamp<std::int64_t>(useful, 1, most));
        typename Kernel::arguments made = describe<Kernel>(p, options, mask, score);
        const bool many = Kernel::unit_heads > 1 || std::int64_t{p.batches()} * head_units >= blocks;
        made.sizes.least_steps = least_steps;
        made.sizes.more_steps = many ? as_long * decode_more_keys(Kernel::unit_heads) / step_keys : 0;
        made.sizes.multiple = useful <= most ? least_steps : 1;
        made.sizes.part_slices = cut ? part_slices_of<Kernel>(p) : Kernel::consumers::slices;
        if constexpr (Kernel::unit_heads == 1) {  // only these are cut
            static_assert(decode_part_step % Kernel::columns == 0, "imbrex: parts have whole stages");
            made.sizes.part_steps = options.keys_in_a_part / Kernel::columns;
            if (cut) made.sizes.most_parts = static_cast<int>(parts);
        }
        made.counters = static_cast<int*>(options.workspace);
        made.partials =
            reinterpret_cast<decode_partial*>(static_cast<char*>(options.workspace) +
                                              Kernel::consumers::counters_bytes(most_blocks(where, options.blocks)));
        imbrex::launch<Kernel>(where, {blocks}, made, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
