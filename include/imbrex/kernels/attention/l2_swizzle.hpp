// L2 swizzle of the attention tile scheduler: the number of sections of heads (tile_scheduler.hpp) that keeps K and V
// in L2 and balances the load of a static persistent schedule, found by simulating the makespan. A typical attention
// has 15 to 20 work tiles per SM, so an SM with one too many is 5% late. The best number of sections depends on all
// lengths and is worth 1 to 3%.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/work.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex {

// The tile shape of a kernel.
struct attention_block_shape {
    int block_m;         // query rows of a block
    int warpgroup_rows;  // query rows of a consumer warpgroup
    int block_n;         // keys of a tile
    bool can_idle;       // a warpgroup without query rows skips its key tiles
};

// The cost of each query block of a head, first to last, in key tiles of a full block.
template <class Mask>
std::vector<double> attention_block_costs(const attention_block_shape& blocks, int seqlen_q, int seqlen_k,
                                          const Mask& mask) {
    const attention_extents sequence{0, 0, seqlen_q, seqlen_k};
    // Measured: the transition between work tiles has some latency that nothing hides, and two of three warpgroups take
    // more than two thirds of the time, since less of their softmax overlaps matrix products.
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

// The time at which the last SM finishes if attention_tile_scheduler distributes the blocks round-robin.
inline double attention_makespan(const std::vector<double>& costs, int heads, int l2_sections, int num_sms) {
    // Difference array: the load of each SM minus that of the SM before it.
    std::vector<double> more(static_cast<std::size_t>(num_sms) + 1, 0.0);
    double each = 0;
    int next = 0;
    for (int section = 0; section < l2_sections; ++section) {
        const int section_heads = static_cast<int>((std::int64_t{heads} * (section + 1)) / l2_sections -
                                                   (std::int64_t{heads} * section) / l2_sections);
        for (std::size_t step = 0; step < costs.size(); ++step) {
            const double cost = (l2_sections - section) % 2 == 1 ? costs[costs.size() - 1 - step] : costs[step];
            each += cost * (section_heads / num_sms);
            const int end = next + section_heads % num_sms;
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

// Sections whose K and V fill about half of L2, or up to three times as many sections. The number is even, so that a
// section in ascending order of cost is followed by one in descending order. 0 (one head after the other) if all blocks
// cost the same.
inline int attention_l2_sections(const std::vector<double>& costs, int heads, double kv_bytes, int num_sms) {
    if (costs.empty() || std::equal(costs.begin() + 1, costs.end(), costs.begin())) return 0;
    if (heads < 2) return heads;
    constexpr double half_of_cache = 24e6;
    // The tile scheduler computes sections * heads in 32 bits.
    const int max_pairs = std::max(std::min(heads / 2, 1000000000 / heads), 1);
    const int pairs = std::clamp(static_cast<int>(kv_bytes / (2 * half_of_cache)) + 1, 1, max_pairs);
    // With many work tiles per SM the imbalance is negligible.
    const double work_tiles = static_cast<double>(costs.size()) * heads;
    if (work_tiles <= num_sms || work_tiles > 64.0 * num_sms) return 2 * pairs;
    int best = pairs;
    double shortest = attention_makespan(costs, heads, 2 * pairs, num_sms);
    for (int candidate = pairs + 1; candidate <= std::min(3 * pairs, max_pairs); ++candidate) {
        const double duration = attention_makespan(costs, heads, 2 * candidate, num_sms);
        if (duration < 0.999 * shortest) {
            shortest = duration;
            best = candidate;
        }
    }
    return 2 * best;
}

// The tile scheduler of a launch. `num_sms` is the number of SMs that a static schedule distributes tiles over; 1 if the
// grid has one block per tile. `kv_bytes`: of all K and V.
template <class Kernel, class Problem, class Mask>
attention_tile_scheduler attention_scheduler_of(const Problem& p, int seqlen_k, double kv_bytes, const Mask& mask,
                                                int num_sms) {
    const int blocks = p.varlen.given()
                           ? attention_tile_scheduler::varlen_blocks(p.seqlen_q(), p.varlen.count, Kernel::block_m)
                           : ceil_div(p.seqlen_q(), Kernel::block_m);
    const std::int64_t all = std::int64_t{blocks} * p.heads() * (p.varlen.given() ? 1 : p.batches());
    require(all <= 2147483647, "q: ", p.batches(), " x ", p.heads(), " x ", p.seqlen_q(), " queries make ", all,
            " blocks; at most 2147483647 are allowed");
    attention_tile_scheduler made{p.batches(), p.heads(), blocks, 0};
    if (!p.varlen.given()) {
        const attention_block_shape one{Kernel::block_m, Kernel::block_m_step, Kernel::block_n, Kernel::can_idle};
        const auto costs = attention_block_costs(one, p.seqlen_q(), seqlen_k, mask);
        made.l2_sections = attention_l2_sections(costs, p.batches() * p.heads(), kv_bytes, num_sms);
    }
    return made;
}

}  // namespace imbrex
