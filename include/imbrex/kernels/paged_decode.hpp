// Decode attention over a paged KV cache, in one launch: the new tokens of each sequence, one or several (speculative
// decoding), attend to all keys and values of their sequence. The kernel is split-KV with GQA packing: the query heads
// that share a KV head are the rows of one tile, so that a key is read once for all of them
// (paged_decode/pack_gqa.hpp).
//
//     using decode = paged_decode<bf16, decode_config{}, causal_mask>;
//     attention_problem<bf16> p{.q = batch_sequence_head(q, sequences, tokens, heads, head_dim),
//                               .k = batch_sequence_head(k_cache, pages, page_size, kv_heads, head_dim),
//                               .v = batch_sequence_head(v_cache, pages, page_size, kv_heads, head_dim),
//                               .out = batch_sequence_head(out, sequences, tokens, heads, head_dim),
//                               .seqused_k = lengths,
//                               .paged_kv = {.block_table = table, .max_blocks_per_seq = width}};
//     decode::launch(world::device, p, {.workspace = workspace}, {}, {}, stream);
//
// The problem is an attention problem with paged keys (attention/problem.hpp). seqused_k includes the new tokens, whose
// keys are already in the KV cache (kernels/paged_append.hpp writes them). The kernel reads lengths and block table
// when it runs. A launch allocates nothing and does not synchronise, so it can be captured in a CUDA graph and replayed
// with other lengths and block tables. The scheduler gives every SM the same amount of keys to read, whatever the
// lengths (paged_decode/scheduler.hpp). Results are bitwise reproducible. Invalid arguments throw imbrex::error before
// launch.
//
// The cache has the element type of the queries, or is e4m3 or int8 with scales (kv_cache_scales.hpp), the same that
// paged_append was given:
//
//     using decode = paged_decode<bf16, decode_config{}, causal_mask, score_mod::identity, e4m3>;
//     decode::problem p{.., .k_scales = kv_scales_per_head(k_scales), .v_scales = kv_scales_per_head(v_scales)};
//
// For sequences that share a prefix, kernels/paged_cascade.hpp reads the prefix once: it runs one launch over the
// prefix and merges its partial result into the launch over the suffixes (`merge_with`).
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/extension_points.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode/ampere.hpp>
#include <imbrex/kernels/paged_decode/cluster.hpp>
#include <imbrex/kernels/paged_decode/config.hpp>
#include <imbrex/kernels/paged_decode/heuristics.hpp>
#include <imbrex/kernels/paged_decode/hopper.hpp>
#include <imbrex/kernels/paged_decode/multi_kv_head.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <type_traits>

namespace imbrex {

// Options of one launch.
struct decode_options {
    // paged_decode::workspace_bytes bytes, in the memory of the kernel's world. Zero it, or only its first
    // workspace_bytes_to_zero bytes, before the first launch; each launch leaves it ready for the next. Concurrent
    // launches need one workspace each.
    void* workspace = nullptr;
    // Partial result of a launch over other keys, for the same rows: o_accum, row_max, row_sum. An LSE merge combines
    // it with this launch's result.
    attention_aux_outputs merge_with = {};
    // The caller promises that no kernel still running in the stream writes the lengths, the block table or the cached
    // keys and values of earlier tokens. With PDL the kernel then prefetches them before its predecessor has finished.
    bool pdl_prefetch = false;
    // Approximate number of keys of all sequences; 0: unknown. Selects a faster kernel when it is large.
    std::int64_t total_seqlen_k = 0;
    // Fixed split size in keys, a multiple of 64. Each sequence is split at multiples of it, counted from its first
    // key, and the splits are merged in order. A sequence's result is then batch invariant: its bits depend on its own
    // keys and queries only, not on the other sequences, their number, the grid or the page size. A token's bits do not
    // depend on the number of tokens it is decoded with either, if the mask hides later keys only and no scales are per
    // page. One kernel does this, with 16 rows at a time. 0: splits are chosen so that all blocks of the grid read the
    // same number of keys.
    int split_size = 0;
    int blocks = 0;                                 // grid size; 0: as many blocks as are resident on all SMs
    std::optional<decode_kernel_kind> kernel = {};  // overrides the heuristic
};

inline namespace IMBREX_WORLDS {

template <class In, decode_config Config = decode_config{}, class Mask = causal_mask, class Score = score_mod::identity,
          class Cache = In>
class paged_decode {
    static_assert(detail::check_attention_extensions<Mask, Score>());

    static_assert(Config.output != attention_output_mode::merged,
                  "imbrex: paged_decode merges through options.merge_with; Config.output is normalised or partial");

  public:
    using problem = attention_problem<In, Config.output, Cache>;

    static decode_kernel_kind choice(world where, const problem& p, const decode_options& options = {}) {
        require_attention(where, p, kv_layout::paged);
        decode_kernel_kind chosen{};
        for_head_dim(p, [&]<int HeadDim>() { chosen = choose_decode(heuristic_inputs<HeadDim>(where, p, options)); });
        return chosen;
    }
    // Whether options.kernel may be this multi-KV-head kernel.
    static bool can_use_multi_kv_head(world where, const problem& p, decode_kernel_kind one,
                                      const decode_options& options = {}) {
        require_attention(where, p, kv_layout::paged);
        bool can = false;
        for_head_dim(p, [&]<int HeadDim>() {
            can =
                kv_heads_per_work_item(one) > 1 &&
                multi_kv_head_work_items(heuristic_inputs<HeadDim>(where, p, options), kv_heads_per_work_item(one)) > 0;
        });
        return can;
    }

    // Independent of the lengths and of the number of sequences. With split_size it grows with the number of sequences
    // and with max_blocks_per_seq. `blocks` and `split_size` as in decode_options.
    static std::size_t workspace_bytes(world where, const problem& p, int blocks = 0, int split_size = 0) {
        require_attention(where, p, kv_layout::paged);
        std::size_t bytes = 0;
        for_head_dim(p, [&]<int HeadDim>() {
            // Enough for any of the kernels.
            for_kernel<HeadDim>(p, split_size, largest_workspace_kind,
                                [&]<class Kernel>() { bytes = bytes_of<Kernel>(where, p, blocks, split_size); });
            for (const int kv_heads : {8, 4, 2}) {
                if (split_size > 0) continue;
                for_multi_kv_head<HeadDim>(
                    kv_heads, [&]<class Kernel>() { bytes = std::max(bytes, bytes_of<Kernel>(where, p, blocks, 0)); });
            }
        });
        return bytes;
    }

    // The beginning of the workspace: arrival counters. The rest may hold anything.
    static std::size_t workspace_bytes_to_zero(world where, int blocks = 0) {
        return decode_workspace<1>::counters_bytes(max_blocks(where, blocks));
    }

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, const decode_options& options, const Mask& mask = {},
                       const Score& score = {}, void* stream = nullptr) {
        require_attention(where, p, kv_layout::paged);
        for_head_dim(p, [&]<int HeadDim>() {
            if (p.empty()) return;
            const decode_heuristic_inputs now = heuristic_inputs<HeadDim>(where, p, options);
            const decode_kernel_kind kernel = options.kernel.value_or(choose_decode(now));
            require(kernel == decode_kernel_kind::ampere_class || can_decode_on_hopper(now),
                    "options.kernel: ", name_of(kernel), "; this problem needs ",
                    name_of(decode_kernel_kind::ampere_class));
            const bool has_fixed_splits =
                kernel == decode_kernel_kind::hopper || kernel == decode_kernel_kind::ampere_class;
            require(has_fixed_splits || options.split_size == 0, "options.kernel: ", name_of(kernel),
                    "; must be hopper or ampere_class with options.split_size");
            if (const int kv_heads = kv_heads_per_work_item(kernel); kv_heads > 1) {
                require(multi_kv_head_work_items(now, kv_heads) > 0, "options.kernel: ", name_of(kernel),
                        "; needs a multiple of ", kv_heads, " KV heads, a head_dim up to ", multi_kv_head_max_head_dim,
                        " and at most ", multi_kv_head_max_rows, " query rows per KV head",
                        kv_heads < 8 ? ", and an 8-bit cache" : "");
                for_multi_kv_head<HeadDim>(
                    kv_heads, [&]<class Kernel>() { launch_kernel<Kernel>(where, p, options, mask, score, stream); });
                return;
            }
            if constexpr (sizeof(Cache) == 2) {
                if (kernel == decode_kernel_kind::cluster) {
                    return launch_cluster<HeadDim>(where, p, options, mask, score, stream);
                }
            }
            require(kernel != decode_kernel_kind::cluster, "options.kernel: ", name_of(kernel),
                    "; an 8-bit cache needs ", name_of(decode_kernel_kind::hopper));
            for_kernel<HeadDim>(p, options.split_size, kernel,
                                [&]<class Kernel>() { launch_kernel<Kernel>(where, p, options, mask, score, stream); });
        });
    }

  private:
    static constexpr decode_kernel_kind largest_workspace_kind =
        Config.targets == kernel_targets::all ? decode_kernel_kind::ampere_class : decode_kernel_kind::hopper;
    template <int HeadDim, int WarpsM>
    using hopper = paged_decode_hopper<In, HeadDim, Mask, Score, decode_shape_for(HeadDim, WarpsM, sizeof(Cache)),
                                       Config.output, Cache>;
    template <int HeadDim, int WarpsM>
    using ampere = paged_decode_ampere<In, HeadDim, Mask, Score,
                                       decode_ampere_shape_for(HeadDim, WarpsM, sizeof(Cache)), Config.output, Cache>;

    template <int HeadDim, int KvHeads>
    using multi_kv_head =
        paged_decode_multi_kv_head<In, HeadDim, Mask, Score, multi_kv_head_shape_for(HeadDim, sizeof(Cache), KvHeads),
                                   Config.output, Cache>;

    // Grid size of one kernel, and the largest of all kernels.
    template <class Kernel>
    static int blocks_of(world where, int wanted, std::int64_t work_items) {
        return wanted > 0 ? wanted
                          : decode_grid_size(imbrex::num_sms(where) * hw::min_blocks_per_sm_of<Kernel>, work_items);
    }
    static int max_blocks(world where, int wanted) {
        return wanted > 0 ? wanted : imbrex::num_sms(where) * decode_min_blocks_per_sm;
    }

    template <class Call>
    static void for_head_dim(const problem& p, const Call& call) {
        const int head_dim = p.head_dim_qk() > p.head_dim_v() ? p.head_dim_qk() : p.head_dim_v();
        require(visit_head_dim<Config.head_dims>(head_dim, call), "q.extents[3], v.extents[3]: ", p.head_dim_qk(), ", ",
                p.head_dim_v(), "; instantiated head dims: ", Config.head_dims.text());
    }
    // Packed GQA rows of a sequence, on average.
    static std::int64_t rows_of(const problem& p) {
        const std::int64_t sequences = p.varlen.given() && p.varlen.count > 0 ? p.varlen.count : 1;
        return std::int64_t{p.seqlen_q()} * p.heads() / (p.kv_heads() * sequences);
    }
    template <int HeadDim, class Call>
    static void for_kernel(const problem& p, int split_size, decode_kernel_kind chosen, const Call& call) {
        require(split_size >= 0 && split_size % decode_split_size_multiple == 0, "options.split_size: ", split_size,
                "; must be 0 or a multiple of ", decode_split_size_multiple);
        const bool one_warp_m = split_size > 0 || decode_warps_m_for(rows_of(p)) == 1;
        if (chosen == decode_kernel_kind::hopper && one_warp_m) {
            call.template operator()<hopper<HeadDim, 1>>();
        } else if (chosen == decode_kernel_kind::hopper) {
            call.template operator()<hopper<HeadDim, 4>>();
        } else if constexpr (Config.targets == kernel_targets::all) {
            if (one_warp_m) {
                call.template operator()<ampere<HeadDim, 1>>();
            } else {
                call.template operator()<ampere<HeadDim, 4>>();
            }
        } else {
            require(false, "q, k, v: ", p.q.pointer,
                    "; kernel_targets::hopper needs sm_90a and strides that are multiples of 16 bytes");
        }
    }

    // Calls with the kernel of that many KV heads per work item, if it is instantiated.
    template <int HeadDim, class Call>
    static void for_multi_kv_head(int kv_heads, const Call& call) {
        if constexpr (multi_kv_head_supports(HeadDim, 8)) {
            if (kv_heads == 8) call.template operator()<multi_kv_head<HeadDim, 8>>();
        }
        if constexpr (multi_kv_head_supports(HeadDim, 4) && sizeof(Cache) == 1) {
            if (kv_heads == 4) call.template operator()<multi_kv_head<HeadDim, 4>>();
        }
        if constexpr (multi_kv_head_supports(HeadDim, 2) && sizeof(Cache) == 1) {
            if (kv_heads == 2) call.template operator()<multi_kv_head<HeadDim, 2>>();
        }
    }

    template <int HeadDim>
    static decode_heuristic_inputs heuristic_inputs(world where, const problem& p, const decode_options& options) {
        const bool can_copy = tma_can_copy(p.q) && tma_can_copy(p.k) && tma_can_copy(p.v) && tma_can_copy(p.out);
        const bool has_pages = p.k.extents[0] > 0 && p.seqlen_k(kv_layout::paged) > 0;
        const std::int64_t sequences = p.varlen.given() ? p.varlen.count : p.batches();
        const std::int64_t kv_bytes_per_token =
            std::int64_t{p.kv_heads()} * (p.head_dim_qk() + p.head_dim_v()) * sizeof(Cache);
        const bool fixed_splits = options.split_size != 0;
        const bool in_clusters = !fixed_splits && options.blocks == 0 && decode_warps_m_for(rows_of(p)) == 1;
        return {.hopper = can_run<hopper<HeadDim, 1>>(where),
                .tma_can_copy = can_copy,
                .has_pages = has_pages,
                .element_bytes = sizeof(Cache),
                .sequences = sequences,
                .total_seqlen_k = fixed_splits ? 0 : options.total_seqlen_k,
                .kv_bytes_per_token = kv_bytes_per_token,
                .clusters = in_clusters ? sequences * p.kv_heads() : 0,
                .max_seqlen_k = p.seqlen_k(kv_layout::paged),
                .head_dim = HeadDim,
                .kv_heads = p.kv_heads(),
                .dynamic_splits = !fixed_splits,
                .small_m = rows_of(p) <= multi_kv_head_max_rows,
                .blocks = options.blocks > 0 ? options.blocks : imbrex::num_sms(where)};
    }
    static attention_aux_outputs outputs_of(const problem& p) {
        attention_aux_outputs made{};
        made.lse2 = p.lse2;
        made.row_max = p.row_max;
        made.row_sum = p.row_sum;
        if constexpr (Config.output != attention_output_mode::normalised) made.o_accum = p.out;
        return made;
    }

    // Upper bound on the row blocks (of Kernel::block_m packed GQA rows) of all sequences.
    template <class Kernel>
    static std::int64_t m_blocks_of(const problem& p) {
        const std::int64_t rows = std::int64_t{p.seqlen_q()} * (p.heads() / p.kv_heads());
        return p.varlen.given() ? rows / Kernel::block_m + p.varlen.count
                                : ceil_div(rows, Kernel::block_m) * p.batches();
    }
    // Splits of a work item with a fixed split size, if its sequence fills its block table.
    static std::int64_t max_splits_of(const problem& p, int split_size) {
        const std::int64_t keys = p.seqlen_k(kv_layout::paged);
        return std::max<std::int64_t>(ceil_div(keys, split_size), 1);
    }
    template <class Kernel>
    static int slices_per_split_of(const problem& p) {
        const std::int64_t rows = std::int64_t{p.seqlen_q()} * (p.heads() / p.kv_heads());
        return p.varlen.given() ? Kernel::consumers::slices : Kernel::consumers::slices_for(rows);
    }
    template <class Kernel>
    static std::size_t bytes_of(world where, const problem& p, int blocks, int split_size) {
        using consumers = typename Kernel::consumers;
        const int most = max_blocks(where, blocks);
        if (split_size == 0) {
            return consumers::workspace_bytes(
                most, std::int64_t{2} * blocks_of<Kernel>(where, blocks, 0) * consumers::slices);
        }
        const std::int64_t work_items = p.empty() ? 0 : m_blocks_of<Kernel>(p) * p.kv_heads();
        return consumers::workspace_bytes(most,
                                          work_items * max_splits_of(p, split_size) * slices_per_split_of<Kernel>(p));
    }

    // The KV cache as the kernel takes it: a TMA tensor, or a view for cp.async.
    template <class Kernel, class Tile>
    static void set_cache(tma_tensor<Tile, 4>& to, const attention_view<const Cache>& view) {
        to = make_tma_tensor<Tile>(for_tma(view), tma_use::load, std::gcd(view.rows(), Tile::rows));
    }
    template <class Kernel>
    static void set_cache(attention_view<const Cache>& to, const attention_view<const Cache>& view) {
        to = view;
    }

    // All arguments except the schedule and the workspace.
    template <class Kernel>
    static typename Kernel::arguments make_arguments(const problem& p, const decode_options& options, const Mask& mask,
                                                     const Score& score) {
        typename Kernel::arguments made{};
        set_cache<Kernel>(made.k, p.k);
        set_cache<Kernel>(made.v, p.v);
        made.q = p.q;
        if constexpr (Config.output == attention_output_mode::normalised) made.results.out = p.out;
        made.results.outputs = outputs_of(p);
        made.results.merge_with = options.merge_with;
        made.results.sinks = p.sinks;
        made.mask = mask;
        made.score = score;
        made.scale = p.scale_used();
        made.lengths = paged_seqlens_of(p);
        made.schedule.batches = p.batches();
        made.schedule.kv_heads = p.kv_heads();
        made.schedule.q_heads_per_kv_head = fast_divmod(p.heads() / p.kv_heads());
        made.k_scales = p.k_scales;
        made.v_scales = p.v_scales;
        if constexpr (hw::uses_pdl<Kernel>) made.pdl_prefetch = options.pdl_prefetch;
        return made;
    }

    template <int HeadDim>
    static void launch_cluster(world where, const problem& p, const decode_options& options, const Mask& mask,
                               const Score& score, void* stream) {
        using kernel = paged_decode_cluster<In, HeadDim, Mask, Score, Config.output>;
        imbrex::launch<kernel>(where, {kernel::blocks_of(p.batches(), p.kv_heads())},
                               make_arguments<kernel>(p, options, mask, score), stream);
    }

    template <class Kernel>
    static void launch_kernel(world where, const problem& p, const decode_options& options, const Mask& mask,
                              const Score& score, void* stream) {
        require(can_run<Kernel>(where), "world: ", name_of(where),
                "; the program has no decode kernel for this device");
        const auto address = reinterpret_cast<std::uintptr_t>(options.workspace);
        require(address != 0 && address % alignof(decode_workspace_slice) == 0,
                "options.workspace: ", options.workspace, "; ",
                workspace_bytes(where, p, options.blocks, options.split_size), " bytes at a multiple of ",
                alignof(decode_workspace_slice), " are needed");
        // Upper bounds: every sequence fills its block table.
        const std::int64_t m_blocks = m_blocks_of<Kernel>(p);
        const int kv_head_groups = p.kv_heads() / Kernel::kv_heads_per_item;
        const std::int64_t work_items = (p.varlen.given() ? p.varlen.count : m_blocks) * kv_head_groups;
        constexpr int keys_per_cost = 2 / sizeof(Cache);  // keys that take as long to read as one 16-bit key
        const std::int64_t tiles_per_item =
            (std::int64_t{p.seqlen_k(kv_layout::paged)} +
             keys_per_cost * decode_work_item_overhead_keys(Kernel::kv_heads_per_item)) /
                Kernel::block_n +
            1;
        const std::int64_t tiles = m_blocks * kv_head_groups * tiles_per_item;
        require(tiles <= 2147483647, "paged_kv.max_blocks_per_seq: ", p.paged_kv.max_blocks_per_seq,
                "; there is room for ", tiles, " tiles of ", Kernel::block_n,
                " keys, and at most 2147483647 are allowed");
        // Blocks that can never have work would only keep SMs from the next kernel.
        const bool fixed_splits = options.split_size > 0;
        constexpr int keys_per_tile = Kernel::block_n * Kernel::kv_heads_per_item;  // of all KV heads of the item
        const int min_tiles_per_block =
            fixed_splits ? 1 : std::max(keys_per_cost * decode_min_keys_per_block(p.head_dim_v()) / keys_per_tile, 1);
        const std::int64_t splits =
            fixed_splits ? max_splits_of(p, options.split_size)
                         : std::max<std::int64_t>((tiles_per_item + min_tiles_per_block - 2) / min_tiles_per_block, 1);
        const std::int64_t useful = m_blocks * kv_head_groups * splits;
        const int most = blocks_of<Kernel>(where, options.blocks, work_items);
        const int blocks = static_cast<int>(std::clamp<std::int64_t>(useful, 1, most));
        typename Kernel::arguments made = make_arguments<Kernel>(p, options, mask, score);
        const bool many = Kernel::kv_heads_per_item > 1 || std::int64_t{p.batches()} * kv_head_groups >= blocks;
        made.schedule.min_tiles_per_block = min_tiles_per_block;
        made.schedule.overhead_tiles =
            many ? keys_per_cost * decode_work_item_overhead_keys(Kernel::kv_heads_per_item) / keys_per_tile : 0;
        made.schedule.tile_multiple = useful <= most ? min_tiles_per_block : 1;
        made.schedule.slices_per_split = fixed_splits ? slices_per_split_of<Kernel>(p) : Kernel::consumers::slices;
        if constexpr (Kernel::kv_heads_per_item == 1) {  // only these kernels have fixed splits
            static_assert(decode_split_size_multiple % Kernel::block_n == 0,
                          "imbrex: a fixed split is a whole number of tiles");
            made.schedule.tiles_per_split = options.split_size / Kernel::block_n;
            if (fixed_splits) made.schedule.max_splits = static_cast<int>(splits);
        }
        made.counters = static_cast<int*>(options.workspace);
        made.partials = reinterpret_cast<decode_workspace_slice*>(
            static_cast<char*>(options.workspace) +
            Kernel::consumers::counters_bytes(max_blocks(where, options.blocks)));
        imbrex::launch<Kernel>(where, {blocks}, made, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
