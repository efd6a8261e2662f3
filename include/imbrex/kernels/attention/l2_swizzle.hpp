// In how many sections an attention's heads are taken (schedule.hpp), so that blocks dealt out in turn keep all multiprocessors
// busy to the end: found by dealing them out on paper. Of an ordinary attention a multiprocessor has some fifteen or twenty pieces of
// work, so whoever has one too many is 5% late. Which number of sections is best hangs on all lengths, and is worth 1 to 3%.
#pragma once

#include <imbrex/kernels/attention/work.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex {

// How the blocks of a kernel are made.
struct attention_block_shape {
    int block_m;         // queries
    int warpgroup_rows;  // queries of one of its groups
    int block_n;         // keys in a tile
    bool can_idle;       // whether a group without queries leaves the others more time
};

// What each of a head's blocks costs, from the first queries to the last, in tiles of keys of a whole block.
template <class Mask>
std::vector<double> attention_block_costs(const attention_block_shape& blocks, int seqlen_q, int seqlen_k,
                                          const Mask& mask) {
    const attention_extents sequence{0, 0, seqlen_q, seqlen_k};
    // Measured: from one piece of work to the next some instructions are hidden by nothing, and two groups of three take more than two
    // thirds of the time, as less of their softmax hides under products.
    constexpr double tile_overhead = 1.4, idle_warpgroup_gain = 0.2;
    std::vector<double> costs(static_cast<std::size_t>((seqlen_q + blocks.block_m - 1) / blocks.block_m));
    for (std::size_t block = 0; block < costs.size(); ++block) {
        const query_range some =
            attention_query_range<Mask>(static_cast<int>(block), blocks.block_m, blocks.warpgroup_rows, seqlen_q);
        key_range seen{0, seqlen_k};
        if constexpr (causal_like<Mask>() && reads_no_memory<Mask>()) {
            seen = mask.visible_keys(sequence, some);
        } else if constexpr (causal_like<Mask>()) {
            seen = causal_mask{}.visible_keys(sequence, some);
        }
        const int first = std::clamp(seen.first, 0, seqlen_k), end = std::clamp(seen.end, first, seqlen_k);
        const int tiles = (end + blocks.block_n - 1) / blocks.block_n - first / blocks.block_n;
        const int idle_warpgroups = (blocks.block_m - (some.end - some.first)) / blocks.warpgroup_rows;
        const double tile = blocks.can_idle ? 1 - idle_warpgroup_gain * idle_warpgroups : 1;
        costs[block] = tile_overhead + tiles * tile;
    }
    return costs;
}

// When the last multiprocessor is done, if the blocks of so many heads are dealt out as attention_tile_scheduler has them.
inline double attention_makespan(const std::vector<double>& costs, int heads, int l2_sections, int num_sms) {
    // By how much each has more than the one before it.
    std::vector<double> more(static_cast<std::size_t>(num_sms) + 1, 0.0);
    double each = 0;
    int next = 0;
    for (int section = 0; section < l2_sections; ++section) {
        const int together = static_cast<int>((std::int64_t{heads} * (section + 1)) / l2_sections -
                                              (std::int64_t{heads} * section) / l2_sections);
        for (std::size_t step = 0; step < costs.size(); ++step) {
            const double cost = (l2_sections - section) % 2 == 1 ? costs[costs.size() - 1 - step] : costs[step];
            each += cost * (together / num_sms);
            const int end = next + together % num_sms;
            more[static_cast<std::size_t>(next)] += cost;
            if (end >= num_sms) more[0] += cost;
            next = end % num_sms;
            more[static_cast<std::size_t>(next)] -= cost;
        }
    }
    double longest = 0, one = 0;
    for (int sm = 0; sm < num_sms; ++sm) {
        one += more[static_cast<std::size_t>(sm)];
        longest = std::max(longest, one);
    }
    return each + longest;
}

// As many sections as take the keys and values of each, together, to about half of L2, or up to three times as many; an even number,
// so that what comes shortest first in one comes longest first in the next. None, one head after the other, if all blocks cost the same.
inline int attention_l2_sections(const std::vector<double>& costs, int heads, double kv_bytes, int num_sms) {
    if (costs.empty() || std::equal(costs.begin() + 1, costs.end(), costs.begin())) return 0;
    if (heads < 2) return heads;
    constexpr double half_of_cache = 24e6;
    // Their product with the heads is counted in 32 bits.
    const int most = std::max(std::min(heads / 2, 1000000000 / heads), 1);
    const int pairs = std::clamp(static_cast<int>(kv_bytes / (2 * half_of_cache)) + 1, 1, most);
    // With many pieces for each multiprocessor, one too many does not matter.
    const double work_tiles = static_cast<double>(costs.size()) * heads;
    if (work_tiles <= num_sms || work_tiles > 64.0 * num_sms) return 2 * pairs;
    int best = pairs;
    double shortest = attention_makespan(costs, heads, 2 * pairs, num_sms);
    for (int others = pairs + 1; others <= std::min(3 * pairs, most); ++others) {
        const double duration = attention_makespan(costs, heads, 2 * others, num_sms);
        if (duration < 0.999 * shortest) {
            shortest = duration;
            best = others;
        }
    }
    return 2 * best;
}

}  // namespace imbrex
