// Which kernel decodes, and in which shape: the tables of choices, in one place.
//
//   what                                                         kernel
//   the device is not a Hopper, TMA cannot read the
//   tensors (distances that are not multiples of 16 bytes), or
//   there are no pages                                           ampere_class    paged_decode/ampere.hpp
//   up to 8 rows of queries that share keys, on average, up to
//   128 columns: as many heads of keys together, for each of
//   which all blocks have a unit of work
//     8, a unit for each block at least                          heads           paged_decode/heads.hpp
//     4 of 8-bit elements, a unit for each block                 kv_heads_4
//     2 of 8-bit elements, 0.6 units for each block at least     kv_heads_2
//   16 heads of keys or fewer of all sequences, whose pages have
//   room for 2,048 keys or fewer (512, if they are deeper than
//   64); 16-bit keys and values, up to 16 rows of queries that
//   share them, on average                                       cluster         paged_decode/cluster.hpp
//   4,096 keys or more in a sequence, on average, and 4 GB or
//   more of 16-bit keys and values in all                        ampere_class    there threads read 1% faster
//   otherwise                                                    hopper          paged_decode/hopper.hpp
//
// How many keys there are is in the memory of the device, and asked of the caller (decode_options::total_seqlen_k). Where it is not known, they are
// taken to be few. Where a sequence's bits are to be its own (decode_options::split_size), only the first row and the last one are
// looked at, and the shape is that for one group of rows: neither depends on what else there is to do.
#pragma once

#include <imbrex/kernels/paged_decode/consumer.hpp>
#include <imbrex/kernels/paged_decode/multi_kv_head.hpp>

#include <cstdint>
#include <string>

namespace imbrex {

enum class decode_kernel_kind { ampere_class, hopper, cluster, kv_heads_8, kv_heads_4, kv_heads_2 };

// Heads of keys that a kernel attends to together.
constexpr int kv_heads_per_work_item(decode_kernel_kind one) {
    return one == decode_kernel_kind::kv_heads_8   ? 8
           : one == decode_kernel_kind::kv_heads_4 ? 4
           : one == decode_kernel_kind::kv_heads_2 ? 2
                                                   : 1;
}

struct decode_heuristic_inputs {
    bool hopper;        // the device, and the program has code for it
    bool tma_can_copy;  // Q, K, V, and O
    bool has_pages;
    int element_bytes;  // of the cache
    std::int64_t sequences;
    std::int64_t total_seqlen_k;      // of all of them, or 0: not known
    std::int64_t kv_bytes_per_token;  // of a key and its value, of all heads
    std::int64_t clusters;            // if there were one for each head of keys of each sequence; 0: there can be none
    std::int64_t max_seqlen_k;        // that the pages of a sequence have room for
    int head_dim;
    int kv_heads;
    bool dynamic_splits;  // sequences are not cut every so many keys
    bool small_m;         // of queries that share keys, on average
    int blocks;           // of a grid of one for each multiprocessor
};

// For more keys of a sequence there are better kernels than one whose blocks are eight for each head. (Measured.)
constexpr int cluster_decode_max_seqlen_k(int head_dim) {
    return head_dim <= 64 ? 2048 : 512;
}

// Heads of keys are attended to together with up to so many rows of queries each. Deeper than this, a stage of eight is too large.
inline constexpr int multi_kv_head_max_rows = 8;
inline constexpr int multi_kv_head_max_head_dim = 128;
constexpr bool multi_kv_head_supports(int head_dim, int heads) {
    // Each warp finishes a multiple of eight columns of packed rows.
    return head_dim <= multi_kv_head_max_head_dim && head_dim / 2 * heads / 8 % decode_slice_columns == 0;
}

constexpr bool can_decode_on_hopper(const decode_heuristic_inputs& s) {
    return s.hopper && s.tma_can_copy && s.has_pages;
}

// Units of work of all sequences, if so many heads of keys are attended to together by a kernel that does; 0: they cannot be.
constexpr std::int64_t multi_kv_head_work_items(const decode_heuristic_inputs& s, int heads) {
    const bool fits =
        can_decode_on_hopper(s) && s.dynamic_splits && s.small_m && multi_kv_head_supports(s.head_dim, heads);
    return fits && s.kv_heads % heads == 0 && (heads == 8 || s.element_bytes == 1) ? s.sequences * s.kv_heads / heads
                                                                                   : 0;
}

constexpr decode_kernel_kind choose_decode(const decode_heuristic_inputs& s) {
    if (!can_decode_on_hopper(s)) return decode_kernel_kind::ampere_class;
    // A unit for each block, or a few less than that. (Measured; so are the others.)
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

// Who has sequences cut every so many keys names a multiple of this, which the stages of all kernels divide.
inline constexpr int decode_split_size_multiple = 64;

// Fewer keys of a head are not worth another multiprocessor: what it finds out has to be put together, and the more columns it has,
// the longer that takes. A power of two. (Measured; of 16-bit elements, of 8-bit ones twice as many, and so with the next.)
constexpr int decode_min_keys_per_block(int head_dim) {
    return head_dim <= 64 ? 64 : 128;
}

// A unit of work takes as much longer than its keys, where there are many of them, as so many keys more of one head would. (Measured.)
constexpr int decode_work_item_overhead_keys(int kv_heads_per_item) {
    return kv_heads_per_item == 1 ? 160 : 512;
}

// Blocks of a grid, for so many units of work: as many as there is room for, or a few less if all have whole units then, or an equal share
// of one each, as long as sequences are. Blocks that go from one unit to the next on their way have more to put together. (Measured: 128
// of 132 read as fast, and are 1 to 4 microseconds earlier.)
constexpr int decode_grid_size(int max_blocks, std::int64_t work_items) {
    if (work_items < 1) return max_blocks;
    for (int blocks = max_blocks; 25 * blocks >= 24 * max_blocks; --blocks) {
        if (work_items % blocks == 0 || blocks % work_items == 0) return blocks;
    }
    return max_blocks;
}

// Depths that kernels are made for. Others are taken by the next larger one, whose further columns are zero. Who knows his depth
// names only that, and compiles only that: decode_head_dims<128>.
template <int... HeadDims>
struct decode_head_dims {
    // call.template operator()<Depth>() for the first that has room; false if there is none.
    template <class Call>
    static bool visit(int wanted, const Call& call) {
        bool found = false;
        ((!found && wanted <= HeadDims ? (found = true, call.template operator()<HeadDims>()) : void()), ...);
        return found;
    }
    static std::string text() {
        std::string all;
        ((all += (all.empty() ? "" : ", ") + std::to_string(HeadDims)), ...);
        return all;
    }
};
using all_decode_head_dims = decode_head_dims<64, 96, 128, 192, 256>;

// Warps that share a stage, a group of 16 rows each: one as long as the rows of a sequence fit it. With more rows a stage is
// multiplied by four: fewer than 64 rows waste some of it, which memory leaves time for.
constexpr int decode_warps_m_for(std::int64_t rows) {
    return rows <= decode_slice_rows ? 1 : 4;
}

// Blocks of the sm_80 class's kernel on a multiprocessor: one reads while another puts results together. Where there is room for one only,
// they take turns.
inline constexpr int decode_min_blocks_per_sm = 2;

// In at most 99 KB of shared memory, which every such GPU has; where there are 163 KB, two blocks have room.
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

// About 128 KB of keys and values on their way, and room for what the warps put together. In a cache of 8-bit elements twice the keys
// are as many bytes.
constexpr decode_shape decode_shape_for(int head_dim, int warps_m, int element_bytes = 2) {
    const int more = 2 / element_bytes;
    switch (head_dim) {
        case 64:
            // For more keys there are no registers, with scores that are changed; and so at a depth of 256 with several groups.
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

// Eight warps; two stages of 8 KB or somewhat less for each. With three, memory was slower: the more it is asked for at once, the
// less it gives. (Measured.)
constexpr multi_kv_head_shape multi_kv_head_shape_for(int head_dim, int element_bytes = 2, int heads = 8) {
    const int row_bytes = head_dim * element_bytes;
    const int keys = 4096 / row_bytes / 16 * 16, bytes = keys * row_bytes;
    return {.keys_per_stage = keys,
            .stages = (2 * 4096 + bytes - 1) / bytes,
            .kv_heads = heads,
            .warps_per_kv_head = 8 / heads};
}

}  // namespace imbrex
