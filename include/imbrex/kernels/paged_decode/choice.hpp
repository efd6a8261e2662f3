// Which kernel decodes, and in which shape: the tables of choices, in one place.
//
//   what                                                         kernel
//   the device is not a Hopper, the copy engine cannot read the
//   tensors (distances that are not multiples of 16 bytes), or
//   there are no pages                                           ampere_class    paged_decode/ampere.hpp
//   up to 8 rows of queries that share keys, on average, up to
//   128 columns: as many heads of keys together, for each of
//   which all blocks have a unit of work
//     8, a unit for each block at least                          heads           paged_decode/heads.hpp
//     4 of 8-bit elements, a unit for each block                 four_heads
//     2 of 8-bit elements, 0.6 units for each block at least     two_heads
//   16 heads of keys or fewer of all sequences, whose pages have
//   room for 2,048 keys or fewer (512, if they are deeper than
//   64); 16-bit keys and values, up to 16 rows of queries that
//   share them, on average                                       cluster         paged_decode/cluster.hpp
//   4,096 keys or more in a sequence, on average, and 4 GB or
//   more of 16-bit keys and values in all                        ampere_class    there threads read 1% faster
//   otherwise                                                    hopper          paged_decode/hopper.hpp
//
// How many keys there are is in the memory of the device, and asked of the caller (decode_options::keys). Where it is not known, they are
// taken to be few. Where a sequence's bits are to be its own (decode_options::keys_in_a_part), only the first row and the last one are
// looked at, and the shape is that for one group of rows: neither depends on what else there is to do.
#pragma once

#include <imbrex/kernels/paged_decode/consumers.hpp>
#include <imbrex/kernels/paged_decode/heads.hpp>

#include <cstdint>
#include <string>

namespace imbrex {

enum class decode_kernel { ampere_class, hopper, cluster, heads, four_heads, two_heads };

// Heads of keys that a kernel attends to together.
constexpr int decode_heads_of(decode_kernel one) {
    return one == decode_kernel::heads        ? 8
           : one == decode_kernel::four_heads ? 4
           : one == decode_kernel::two_heads  ? 2
                                              : 1;
}

struct decode_situation {
    bool hopper;           // the device, and the program has code for it
    bool engine_can_copy;  // Q, K, V, and O
    bool has_pages;
    int element_bytes;  // of the cache
    std::int64_t sequences;
    std::int64_t keys;       // of all of them, or 0: not known
    std::int64_t key_bytes;  // of a key and its value, of all heads
    std::int64_t clusters;   // if there were one for each head of keys of each sequence; 0: there can be none
    std::int64_t most_keys;  // that the pages of a sequence have room for
    int depth;
    int key_heads;
    bool whole;     // sequences are not cut every so many keys
    bool few_rows;  // of queries that share keys, on average
    int blocks;     // of a grid of one for each multiprocessor
};

// For more keys of a sequence there are better kernels than one whose blocks are eight for each head. (Measured.)
constexpr int decode_most_keys_of_cluster(int depth) {
    return depth <= 64 ? 2048 : 512;
}

// Heads of keys are attended to together with up to so many rows of queries each. Deeper than this, a stage of eight is too large.
inline constexpr int decode_most_rows_of_heads = 8;
inline constexpr int decode_most_depth_of_heads = 128;
constexpr bool decode_can_share(int depth, int heads) {
    // Each warp finishes a multiple of eight columns of packed rows.
    return depth <= decode_most_depth_of_heads && depth / 2 * heads / 8 % decode_slice_width == 0;
}

constexpr bool can_decode_on_hopper(const decode_situation& s) {
    return s.hopper && s.engine_can_copy && s.has_pages;
}

// Units of work of all sequences, if so many heads of keys are attended to together by a kernel that does; 0: they cannot be.
constexpr std::int64_t decode_units_together(const decode_situation& s, int heads) {
    const bool fits = can_decode_on_hopper(s) && s.whole && s.few_rows && decode_can_share(s.depth, heads);
    return fits && s.key_heads % heads == 0 && (heads == 8 || s.element_bytes == 1) ? s.sequences * s.key_heads / heads
                                                                                    : 0;
}

constexpr decode_kernel choose_decode(const decode_situation& s) {
    if (!can_decode_on_hopper(s)) return decode_kernel::ampere_class;
    // A unit for each block, or a few less than that. (Measured; so are the others.)
    const auto enough = [&](std::int64_t units) { return units > 0 && 25 * units >= 24 * s.blocks; };
    const std::int64_t of_four = decode_units_together(s, 4), of_two = decode_units_together(s, 2);
    if (enough(decode_units_together(s, 8))) return decode_kernel::heads;
    if (enough(of_four) && 16 * of_four <= 17 * s.blocks) return decode_kernel::four_heads;
    if (of_two > 0 && 5 * of_two >= 3 * s.blocks) return decode_kernel::two_heads;
    if (s.element_bytes == 2 && s.keys >= 4096 * s.sequences && s.keys * s.key_bytes >= 4000000000) {
        return decode_kernel::ampere_class;
    }
    const bool small = s.element_bytes == 2 && s.clusters >= 1 && s.clusters <= 16 &&
                       s.most_keys <= decode_most_keys_of_cluster(s.depth);
    return small ? decode_kernel::cluster : decode_kernel::hopper;
}

constexpr const char* name_of(decode_kernel one) {
    switch (one) {
        case decode_kernel::cluster:
            return "cluster";
        case decode_kernel::heads:
            return "heads";
        case decode_kernel::four_heads:
            return "four_heads";
        case decode_kernel::two_heads:
            return "two_heads";
        case decode_kernel::hopper:
            return "hopper";
        default:
            return "ampere_class";
    }
}

// Who has sequences cut every so many keys names a multiple of this, which the stages of all kernels divide.
inline constexpr int decode_part_step = 64;

// Fewer keys of a head are not worth another multiprocessor: what it finds out has to be put together, and the more columns it has,
// the longer that takes. A power of two. (Measured; of 16-bit elements, of 8-bit ones twice as many, and so with the next.)
constexpr int decode_least_keys(int depth) {
    return depth <= 64 ? 64 : 128;
}

// A unit of work takes as much longer than its keys, where there are many of them, as so many keys more of one head would. (Measured.)
constexpr int decode_more_keys(int unit_heads) {
    return unit_heads == 1 ? 160 : 512;
}

// Blocks of a grid, for so many units of work: as many as there is room for, or a few less if all have whole units then, or an equal share
// of one each, as long as sequences are. Blocks that go from one unit to the next on their way have more to put together. (Measured: 128
// of 132 read as fast, and are 1 to 4 microseconds earlier.)
constexpr int decode_blocks_for(int room, std::int64_t units) {
    if (units < 1) return room;
    for (int blocks = room; 25 * blocks >= 24 * room; --blocks) {
        if (units % blocks == 0 || blocks % units == 0) return blocks;
    }
    return room;
}

// Depths that kernels are made for. Others are taken by the next larger one, whose further columns are zero. Who knows his depth
// names only that, and compiles only that: decode_depths<128>.
template <int... Depths>
struct decode_depths {
    // call.template operator()<Depth>() for the first that has room; false if there is none.
    template <class Call>
    static bool visit(int wanted, const Call& call) {
        bool found = false;
        ((!found && wanted <= Depths ? (found = true, call.template operator()<Depths>()) : void()), ...);
        return found;
    }
    static std::string text() {
        std::string all;
        ((all += (all.empty() ? "" : ", ") + std::to_string(Depths)), ...);
        return all;
    }
};
using all_decode_depths = decode_depths<64, 96, 128, 192, 256>;

// Warps that share a stage, a group of 16 rows each: one as long as the rows of a sequence fit it. With more rows a stage is
// multiplied by four: fewer than 64 rows waste some of it, which memory leaves time for.
constexpr int decode_groups_for(std::int64_t rows) {
    return rows <= decode_slice ? 1 : 4;
}

// Blocks of the sm_80 class's kernel on a multiprocessor: one reads while another puts results together. Where there is room for one only,
// they take turns.
inline constexpr int decode_residents = 2;

// In at most 99 KB of shared memory, which every such GPU has; where there are 163 KB, two blocks have room.
constexpr decode_shape decode_ampere_shape_for(int depth, int groups, int element_bytes = 2) {
    const int more = 2 / element_bytes;
    return {.groups = groups,
            .keys = depth > 128 ? 16 : 32,
            .stages = (depth == 64 ? 8 : 4) * more,
            .combined_columns = depth,
            .warps = 4,
            .residents = decode_residents,
            .threads_copy = true};
}

// About 128 KB of keys and values on their way, and room for what the warps put together. In a cache of 8-bit elements twice the keys
// are as many bytes.
constexpr decode_shape decode_shape_for(int depth, int groups, int element_bytes = 2) {
    const int more = 2 / element_bytes;
    switch (depth) {
        case 64:
            // For more keys there are no registers, with scores that are changed; and so at a depth of 256 with several groups.
            return {.groups = groups, .keys = 32, .stages = 16 * more, .combined_columns = 64};
        case 96:
            return {.groups = groups, .keys = 32 * more, .stages = 16, .combined_columns = 32};
        case 128:
            return {.groups = groups, .keys = 32 * more, .stages = 8, .combined_columns = 128};
        case 192:
            return {.groups = groups, .keys = 16 * more, .stages = 8, .combined_columns = 192};
        default:
            return groups == 1
                       ? decode_shape{.groups = groups, .keys = 16 * more, .stages = 8, .combined_columns = 128}
                       : decode_shape{.groups = groups, .keys = 16, .stages = 8 * more, .combined_columns = 128};
    }
}

// Eight warps; two stages of 8 KB or somewhat less for each. With three, memory was slower: the more it is asked for at once, the
// less it gives. (Measured.)
constexpr decode_heads_shape decode_heads_shape_for(int depth, int element_bytes = 2, int heads = 8) {
    const int row_bytes = depth * element_bytes;
    const int keys = 4096 / row_bytes / 16 * 16, bytes = keys * row_bytes;
    return {.keys = keys, .stages = (2 * 4096 + bytes - 1) / bytes, .heads = heads, .sharers = 8 / heads};
}

}  // namespace imbrex
