// Sections of an attention's heads: the paper on which blocks are dealt out agrees with the order in which they are, and what is
// chosen is no worse than the fewest.
#include <imbrex/kernels/attention/dealing.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace imbrex;

namespace {

// The same, block by block.
double dealt(const std::vector<double>& costs, int heads, int sections, int processors) {
    const attention_lengths lengths{0, 0};
    const attention_order order{1, heads, static_cast<int>(costs.size()), sections};
    std::vector<double> each(static_cast<std::size_t>(processors), 0.0);
    for (int number = 0; number < order.total(lengths); ++number) {
        each[static_cast<std::size_t>(number % processors)] +=
            costs[static_cast<std::size_t>(order.at(number, lengths, 128).block)];
    }
    return *std::max_element(each.begin(), each.end());
}

constexpr attention_blocks three_groups{192, 64, 128, true};

}  // namespace

TEST_CASE("how long blocks take that are dealt out in turn") {
    for (const int queries : {1, 192, 700, 1024}) {
        const auto costs = attention_costs(three_groups, queries, queries + 100, causal_mask{});
        for (const int heads : {1, 2, 7, 40, 300}) {
            for (const int sections : {1, 2, 5, 6}) {
                if (sections > heads) continue;
                for (const int processors : {1, 4, 132}) {
                    CAPTURE(queries);
                    CAPTURE(heads);
                    CAPTURE(sections);
                    CAPTURE(processors);
                    CHECK(attention_duration(costs, heads, sections, processors) ==
                          doctest::Approx(dealt(costs, heads, sections, processors)));
                }
            }
        }
    }
}

TEST_CASE("blocks cost what they see, and less if a group of theirs rests") {
    const auto causal = attention_costs(three_groups, 1024, 1024, causal_mask{});
    CHECK(std::is_sorted(causal.begin(), causal.end()));
    CHECK(causal[5] - causal[4] == doctest::Approx(1));  // 1024 keys and 832, in tiles of 128
    const auto full = attention_costs(three_groups, 1024, 1024, full_mask{});
    CHECK(full[0] == full[1]);
    CHECK(full[1] < full[2]);
    CHECK(full[2] == full[5]);
    const auto none_rests = attention_costs({192, 64, 128, false}, 1024, 1024, full_mask{});
    CHECK(none_rests[0] == none_rests[5]);
    // A window is as wide everywhere but where it begins; and who reads memory is not asked.
    const auto window = attention_costs(three_groups, 1920, 1920, window_mask{255, 0});
    CHECK(window[0] < window[3]);
    CHECK(window[3] == window[9]);
    CHECK(attention_costs(three_groups, 1920, 1920, all_masks(causal_mask{}, window_mask{255, 0})) == window);
    CHECK(attention_costs(three_groups, 1920, 1920, all_masks(causal_mask{}, length_mask{nullptr})) ==
          attention_costs(three_groups, 1920, 1920, causal_mask{}));
    // Queries before the first key see nothing.
    const auto few_keys = attention_costs(three_groups, 1024, 100, causal_mask{});
    CHECK(few_keys[0] == few_keys[3]);
    CHECK(few_keys[3] < few_keys[5]);
    CHECK(attention_costs(three_groups, 0, 10, full_mask{}).empty());
}

TEST_CASE("sections: none if all blocks cost the same, otherwise an even number that is no slower than the fewest") {
    CHECK(attention_sections({}, 8, 1e6, 132) == 0);
    CHECK(attention_sections({3, 3, 3}, 8, 1e6, 132) == 0);
    CHECK(attention_sections({1, 2, 3}, 1, 1e6, 132) == 1);
    CHECK(attention_sections({1, 2, 3}, 3, 1e6, 132) == 2);
    for (const int length : {1024, 2048, 4096, 8192, 16384}) {
        const int heads = 16384 / length * 32;
        const auto costs = attention_costs(three_groups, length, length, causal_mask{});
        const int sections = attention_sections(costs, heads, 134e6, 132);
        CAPTURE(length);
        CHECK(sections % 2 == 0);
        CHECK(sections >= 6);
        CHECK(sections <= 18);
        CHECK(attention_duration(costs, heads, sections, 132) <= attention_duration(costs, heads, 6, 132));
    }
    // What keys and values need has the last word: not more sections than pairs of heads.
    CHECK(attention_sections({1, 2, 3}, 10, 1e12, 132) == 10);
}
