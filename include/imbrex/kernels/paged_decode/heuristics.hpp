// Kernel selection and tile shapes of paged decode: all heuristics in one place.
//
//   problem                                                      kernel
//   not a Hopper GPU; strides that TMA cannot read (not
//   multiples of 16 bytes); or no pages                          ampere_class    paged_decode/ampere.hpp
//   up to 8 packed GQA rows per KV head on average, head_dim up
//   to 128, and enough work items of several KV heads each:
//     8 KV heads, at least 1 work item per block                 kv_heads_8      paged_decode/multi_kv_head.hpp
//     4 KV heads, 8-bit cache, 1 work item per block             kv_heads_4
//     2 KV heads, 8-bit cache, at least 0.6 work items per block kv_heads_2
//   sequences x KV heads up to 16, room for at most 2,048 keys
//   per sequence (512 if head_dim > 64), 16-bit cache, up to 16
//   packed rows on average                                       cluster         paged_decode/cluster.hpp
//   4,096 keys or more per sequence on average, and 4 GB or
//   more of 16-bit keys and values in all                        ampere_class    cp.async reads 1% faster there
//   otherwise                                                    hopper          paged_decode/hopper.hpp
//
// The lengths are in device memory, so the number of keys must come from the caller (decode_options::total_seqlen_k);
// if it is unknown, it is taken to be small. With a fixed split size (decode_options::split_size) only the first and
// the last row of the table apply, and the shape is that of 16 query rows: neither depends on the rest of the batch.
#pragma once

#include <imbrex/kernels/paged_decode/consumer.hpp>
#include <imbrex/kernels/paged_decode/multi_kv_head.hpp>

#include <cstdint>

namespace imbrex {

enum class decode_kernel_kind { ampere_class, hopper, cluster, kv_heads_8, kv_heads_4, kv_heads_2 };

// KV heads of a work item.
constexpr int kv_heads_per_work_item(decode_kernel_kind one) {
    return one == decode_kernel_kind::kv_heads_8   ? 8
           : one == decode_kernel_kind::kv_heads_4 ? 4
           : one == decode_kernel_kind::kv_heads_2 ? 2
                                                   : 1;
}

struct decode_heuristic_inputs {
    bool hopper;        // the device is a Hopper, and the program has code for it
    bool tma_can_copy;  // Q, K, V and O
    bool has_pages;
    int element_bytes;  // of the cache
    std::int64_t sequences;
    std::int64_t total_seqlen_k;      // of all sequences; 0: unknown
    std::int64_t kv_bytes_per_token;  // of K and V, of all KV heads
    std::int64_t clusters;            // sequences x KV heads; 0: the cluster kernel cannot run
    std::int64_t max_seqlen_k;        // for which max_blocks_per_seq has room
    int head_dim;
    int kv_heads;
    bool dynamic_splits;  // no fixed split size
    bool small_m;         // at most multi_kv_head_max_rows packed rows, on average
    int blocks;           // one per SM
};

// With longer sequences eight blocks per KV head are too few. (Measured.)
constexpr int cluster_decode_max_seqlen_k(int head_dim) {
    return head_dim <= 64 ? 2048 : 512;
}

// Packed query rows per KV head that the multi-KV-head kernels take, and their largest head_dim: beyond it eight stages
// do not fit.
inline constexpr int multi_kv_head_max_rows = 8;
inline constexpr int multi_kv_head_max_head_dim = 128;
constexpr bool multi_kv_head_supports(int head_dim, int heads) {
    // Each warp writes a multiple of eight columns of packed rows.
    return head_dim <= multi_kv_head_max_head_dim && head_dim / 2 * heads / 8 % decode_slice_columns == 0;
}

constexpr bool can_decode_on_hopper(const decode_heuristic_inputs& s) {
    return s.hopper && s.tma_can_copy && s.has_pages;
}

// Work items of all sequences with `heads` KV heads each; 0: no kernel does that.
constexpr std::int64_t multi_kv_head_work_items(const decode_heuristic_inputs& s, int heads) {
    const bool fits =
        can_decode_on_hopper(s) && s.dynamic_splits && s.small_m && multi_kv_head_supports(s.head_dim, heads);
    return fits && s.kv_heads % heads == 0 && (heads == 8 || s.element_bytes == 1) ? s.sequences * s.kv_heads / heads
                                                                                   : 0;
}

constexpr decode_kernel_kind choose_decode(const decode_heuristic_inputs& s) {
    if (!can_decode_on_hopper(s)) return decode_kernel_kind::ampere_class;
    // One work item per block, or slightly less. (This and the other thresholds are measured.)
    const auto enough = [&](std::int64_t work_items) { return work_items > 0 && 25 * work_items >= 24 * s.blocks; };
    const std::int64_t of_four = multi_kv_head_work_items(s, 4), of_two = multi_kv_head_work_items(s, 2);
    if (enough(multi_kv_head_work_items(s, 8))) return decode_kernel_kind::kv_heads_8;
    if (enough(of_four) && 16 * of_four <= 17 * s.blocks) return decode_kernel_kind::kv_heads_4;
    if (of_two > 0 && 5 * of_two >= 3 * s.blocks) return decode_kernel_kind::kv_heads_2;
    if (s.element_bytes == 2 && s.total_seqlen_k >= 4096 * s.sequences &&
        s.total_seqlen_k * s.kv_bytes_per_token >= 4000000000) {
        return decode_kernel_kind::ampere_class;
    }
    const bool small = s.element_bytes == 2 && s.clusters >= 1 && s.clusters <= 16 &&
                       s.max_seqlen_k <= cluster_decode_max_seqlen_k(s.head_dim);
    return small ? decode_kernel_kind::cluster : decode_kernel_kind::hopper;
}

constexpr const char* name_of(decode_kernel_kind one) {
    switch (one) {
        case decode_kernel_kind::cluster:
            return "cluster";
        case decode_kernel_kind::kv_heads_8:
            return "kv_heads_8";
        case decode_kernel_kind::kv_heads_4:
            return "kv_heads_4";
        case decode_kernel_kind::kv_heads_2:
            return "kv_heads_2";
        case decode_kernel_kind::hopper:
            return "hopper";
        default:
            return "ampere_class";
    }
}

// A fixed split size is a multiple of this, which is a multiple of block_n of all kernels.
inline constexpr int decode_split_size_multiple = 64;

// Fewer keys of a KV head are not worth another SM: its partial result must be merged, which takes longer with more
// columns. A power of two. (Measured with 16-bit elements; for 8-bit elements this and the next are doubled.)
constexpr int decode_min_keys_per_block(int head_dim) {
    return head_dim <= 64 ? 64 : 128;
}

// Fixed cost of a work item, in keys of one KV head. (Measured.)
constexpr int decode_work_item_overhead_keys(int kv_heads_per_item) {
    return kv_heads_per_item == 1 ? 160 : 512;
}

// Grid size: as many blocks as are resident, or up to 4% fewer if every block then has whole work items, or an equal
// share of one each (with equal lengths). Blocks that cross from one work item to the next have more to merge.
// (Measured: 128 of 132 blocks read as fast and finish 1 to 4 microseconds earlier.)
constexpr int decode_grid_size(int max_blocks, std::int64_t work_items) {
    if (work_items < 1) return max_blocks;
    for (int blocks = max_blocks; 25 * blocks >= 24 * max_blocks; --blocks) {
        if (work_items % blocks == 0 || blocks % work_items == 0) return blocks;
    }
    return max_blocks;
}

// Warps that share a stage, 16 query rows each: one if the packed rows of a sequence fit it, otherwise four. With fewer
// than 64 rows some of the products are padding, which costs nothing while the kernel is bound by memory.
constexpr int decode_warps_m_for(std::int64_t rows) {
    return rows <= decode_slice_rows ? 1 : 4;
}

// Blocks per SM of the sm_80 kernel: one reads while another merges. If only one fits, they run one after the other.
inline constexpr int decode_min_blocks_per_sm = 2;

// At most 99 KB of shared memory, which every GPU from sm_80 on has; with 163 KB two blocks fit an SM.
constexpr decode_shape decode_ampere_shape_for(int head_dim, int warps_m, int element_bytes = 2) {
    const int more = 2 / element_bytes;
    return {.warps_m = warps_m,
            .block_n = head_dim > 128 ? 16 : 32,
            .stages = (head_dim == 64 ? 8 : 4) * more,
            .merge_columns = head_dim,
            .warps = 4,
            .min_blocks_per_sm = decode_min_blocks_per_sm,
            .uses_cp_async = true};
}

// About 128 KB of keys and values in flight, plus the merge buffers. With 8-bit elements twice as many keys are as many
// bytes.
constexpr decode_shape decode_shape_for(int head_dim, int warps_m, int element_bytes = 2) {
    const int more = 2 / element_bytes;
    switch (head_dim) {
        case 64:
            // More keys per stage would spill registers with a score_mod; the same at head_dim 256 with warps_m > 1.
            return {.warps_m = warps_m, .block_n = 32, .stages = 16 * more, .merge_columns = 64};
        case 96:
            return {.warps_m = warps_m, .block_n = 32 * more, .stages = 16, .merge_columns = 32};
        case 128:
            return {.warps_m = warps_m, .block_n = 32 * more, .stages = 8, .merge_columns = 128};
        case 192:
            return {.warps_m = warps_m, .block_n = 16 * more, .stages = 8, .merge_columns = 192};
        default:
            return warps_m == 1
                       ? decode_shape{.warps_m = warps_m, .block_n = 16 * more, .stages = 8, .merge_columns = 128}
                       : decode_shape{.warps_m = warps_m, .block_n = 16, .stages = 8 * more, .merge_columns = 128};
    }
}

// Eight warps with two stages of at most 8 KB each. Three stages were measured to be slower: memory bandwidth falls
// with more requests in flight.
constexpr multi_kv_head_shape multi_kv_head_shape_for(int head_dim, int element_bytes = 2, int heads = 8) {
    const int row_bytes = head_dim * element_bytes;
    const int keys = 4096 / row_bytes / 16 * 16, bytes = keys * row_bytes;
    return {.keys_per_stage = keys,
            .stages = (2 * 4096 + bytes - 1) / bytes,
            .kv_heads = heads,
            .warps_per_kv_head = 8 / heads};
}

}  // namespace imbrex
