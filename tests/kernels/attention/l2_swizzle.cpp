// L2 swizzle: the simulated makespan agrees with the order of the tile scheduler, and the chosen number of sections is
// no worse than the smallest.
#include <imbrex/kernels/attention/l2_swizzle.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace imbrex;

namespace {

// The same, block by block.
double makespan_of_order(const std::vector<double>& costs, int heads, int l2_sections, int num_sms) {
    const attention_seqlens lengths{0, 0};
    const attention_tile_scheduler scheduler{1, heads, static_cast<int>(costs.size()), l2_sections};
    std::vector<double> each(static_cast<std::size_t>(num_sms), 0.0);
    for (int number = 0; number < scheduler.total(lengths); ++number) {
        each[static_cast<std::size_t>(number % num_sms)] +=
            costs[static_cast<std::size_t>(scheduler.at(number, lengths, 128).block)];
    }
    return *std::max_element(each.begin(), each.end());
}

constexpr attention_block_shape three_groups{192, 64, 128, true};

}  // namespace

TEST_CASE("attention_makespan agrees with round-robin assignment") {
    for (const int seqlen_q : {1, 192, 700, 1024}) {
        const auto costs = attention_block_costs(three_groups, seqlen_q, seqlen_q + 100, causal_mask{});
        for (const int heads : {1, 2, 7, 40, 300}) {
            for (const int l2_sections : {1, 2, 5, 6}) {
                if (l2_sections > heads) continue;
                for (const int num_sms : {1, 4, 132}) {
                    CAPTURE(seqlen_q);
                    CAPTURE(heads);
                    CAPTURE(l2_sections);
                    CAPTURE(num_sms);
                    CHECK(attention_makespan(costs, heads, l2_sections, num_sms) ==
                          doctest::Approx(makespan_of_order(costs, heads, l2_sections, num_sms)));
                }
            }
        }
    }
}

TEST_CASE("a block costs its visible key tiles, and less with an idle warpgroup") {
    const auto causal = attention_block_costs(three_groups, 1024, 1024, causal_mask{});
    CHECK(std::is_sorted(causal.begin(), causal.end()));
    CHECK(causal[5] - causal[4] == doctest::Approx(1));  // 1024 keys and 832, in tiles of 128
    const auto full = attention_block_costs(three_groups, 1024, 1024, full_mask{});
    CHECK(full[0] == full[1]);
    CHECK(full[1] < full[2]);
    CHECK(full[2] == full[5]);
    const auto none_idles = attention_block_costs({192, 64, 128, false}, 1024, 1024, full_mask{});
    CHECK(none_idles[0] == none_idles[5]);
    // A window has the same width everywhere but at the start; a mask that reads memory is not called.
    const auto window = attention_block_costs(three_groups, 1920, 1920, window_mask{255, 0});
    CHECK(window[0] < window[3]);
    CHECK(window[3] == window[9]);
    CHECK(attention_block_costs(three_groups, 1920, 1920, and_masks(causal_mask{}, window_mask{255, 0})) == window);
    CHECK(attention_block_costs(three_groups, 1920, 1920, and_masks(causal_mask{}, length_mask{nullptr})) ==
          attention_block_costs(three_groups, 1920, 1920, causal_mask{}));
    // Queries before the first key see nothing.
    const auto few_keys = attention_block_costs(three_groups, 1024, 100, causal_mask{});
    CHECK(few_keys[0] == few_keys[3]);
    CHECK(few_keys[3] < few_keys[5]);
    CHECK(attention_block_costs(three_groups, 0, 10, full_mask{}).empty());
}

TEST_CASE("attention_l2_sections is 0 for equal costs, otherwise an even number that is no slower than the smallest") {
    CHECK(attention_l2_sections({}, 8, 1e6, 132) == 0);
    CHECK(attention_l2_sections({3, 3, 3}, 8, 1e6, 132) == 0);
    CHECK(attention_l2_sections({1, 2, 3}, 1, 1e6, 132) == 1);
    CHECK(attention_l2_sections({1, 2, 3}, 3, 1e6, 132) == 2);
    for (const int length : {1024, 2048, 4096, 8192, 16384}) {
        const int heads = 16384 / length * 32;
        const auto costs = attention_block_costs(three_groups, length, length, causal_mask{});
        const int l2_sections = attention_l2_sections(costs, heads, 134e6, 132);
        CAPTURE(length);
        CHECK(l2_sections % 2 == 0);
        CHECK(l2_sections >= 6);
        CHECK(l2_sections <= 18);
        CHECK(attention_makespan(costs, heads, l2_sections, 132) <= attention_makespan(costs, heads, 6, 132));
    }
    // The size of K and V takes precedence; at most as many sections as pairs of heads.
    CHECK(attention_l2_sections({1, 2, 3}, 10, 1e12, 132) == 10);
}
