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
struct attention_blocks {
    int rows;        // queries
    int group_rows;  // queries of one of its groups
    int columns;     // keys in a tile
    bool rests;      // whether a group without queries leaves the others more time
};

// What each of a head's blocks costs, from the first queries to the last, in tiles of keys of a whole block.
template <class Mask>
std::vector<double> attention_costs(const attention_blocks& blocks, int queries, int keys, const Mask& mask) {
    const attention_sequence sequence{0, 0, queries, keys};
    // Measured: from one piece of work to the next some instructions are hidden by nothing, and two groups of three take more than two
    // thirds of the time, as less of their softmax hides under products.
    constexpr double turn = 1.4, of_group_at_rest = 0.2;
    std::vector<double> costs(static_cast<std::size_t>((queries + blocks.rows - 1) / blocks.rows));
    for (std::size_t block = 0; block < costs.size(); ++block) {
        const query_range some =
            attention_queries_of<Mask>(static_cast<int>(block), blocks.rows, blocks.group_rows, queries);
        key_range seen{0, keys};
        if constexpr (later_queries_see_more<Mask>() && reads_no_memory<Mask>()) {
            seen = mask.keys(sequence, some);
        } else if constexpr (later_queries_see_more<Mask>()) {
            seen = causal_mask{}.keys(sequence, some);
        }
        const int first = std::clamp(seen.first, 0, keys), end = std::clamp(seen.end, first, keys);
        const int tiles = (end + blocks.columns - 1) / blocks.columns - first / blocks.columns;
        const int at_rest = (blocks.rows - (some.end - some.first)) / blocks.group_rows;
        const double tile = blocks.rests ? 1 - of_group_at_rest * at_rest : 1;
        costs[block] = turn + tiles * tile;
    }
    return costs;
}

// When the last multiprocessor is done, if the blocks of so many heads are dealt out as attention_order has them.
inline double attention_duration(const std::vector<double>& costs, int heads, int sections, int processors) {
    // By how much each has more than the one before it.
    std::vector<double> more(static_cast<std::size_t>(processors) + 1, 0.0);
    double each = 0;
    int next = 0;
    for (int section = 0; section < sections; ++section) {
        const int together = static_cast<int>((std::int64_t{heads} * (section + 1)) / sections -
                                              (std::int64_t{heads} * section) / sections);
        for (std::size_t step = 0; step < costs.size(); ++step) {
            const double cost = (sections - section) % 2 == 1 ? costs[costs.size() - 1 - step] : costs[step];
            each += cost * (together / processors);
            const int end = next + together % processors;
            more[static_cast<std::size_t>(next)] += cost;
            if (end >= processors) more[0] += cost;
            next = end % processors;
            more[static_cast<std::size_t>(next)] -= cost;
        }
    }
    double longest = 0, one = 0;
    for (int processor = 0; processor < processors; ++processor) {
        one += more[static_cast<std::size_t>(processor)];
        longest = std::max(longest, one);
    }
    return each + longest;
}

// As many sections as take the keys and values of each, together, to about half of L2, or up to three times as many; an even number,
// so that what comes shortest first in one comes longest first in the next. None, one head after the other, if all blocks cost the same.
inline int attention_sections(const std::vector<double>& costs, int heads, double key_and_value_bytes, int processors) {
    if (costs.empty() || std::equal(costs.begin() + 1, costs.end(), costs.begin())) return 0;
    if (heads < 2) return heads;
    constexpr double half_of_cache = 24e6;
    // Their product with the heads is counted in 32 bits.
    const int most = std::max(std::min(heads / 2, 1000000000 / heads), 1);
    const int pairs = std::clamp(static_cast<int>(key_and_value_bytes / (2 * half_of_cache)) + 1, 1, most);
    // With many pieces for each multiprocessor, one too many does not matter.
    const double pieces = static_cast<double>(costs.size()) * heads;
    if (pieces <= processors || pieces > 64.0 * processors) return 2 * pairs;
    int best = pairs;
    double shortest = attention_duration(costs, heads, 2 * pairs, processors);
    for (int others = pairs + 1; others <= std::min(3 * pairs, most); ++others) {
        const double duration = attention_duration(costs, heads, 2 * others, processors);
        if (duration < 0.999 * shortest) {
            shortest = duration;
            best = others;
        }
    }
    return 2 * best;
}

}  // namespace imbrex
