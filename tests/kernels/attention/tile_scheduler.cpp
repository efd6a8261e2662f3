// Tile scheduler: every query block exactly once for all sections and lengths, in an order that balances the SMs.
#include <imbrex/kernels/attention/tile_scheduler.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

using namespace imbrex;

namespace {

using coord = std::tuple<int, int, int>;

std::vector<coord> all_coords(const attention_tile_scheduler& scheduler, const attention_seqlens& lengths, int rows) {
    std::vector<coord> all;
    for (int number = 0; number < scheduler.total(lengths); ++number) {
        const auto at = scheduler.at(number, lengths, rows);
        all.emplace_back(at.batch, at.head, at.block);
    }
    return all;
}

}  // namespace

TEST_CASE("visits every block of every head once, for any number of sections") {
    const attention_seqlens lengths{.seqlen_q = 0, .seqlen_k = 0};
    for (const int batches : {1, 2, 5}) {
        for (const int heads : {1, 3, 8}) {
            for (const int blocks : {1, 2, 7}) {
                for (int l2_sections = 0; l2_sections <= batches * heads; ++l2_sections) {
                    const auto all = all_coords({batches, heads, blocks, l2_sections}, lengths, 128);
                    const std::set<coord> different(all.begin(), all.end());
                    CHECK(different.size() == all.size());
                    CHECK(all.size() == std::size_t(batches * heads * blocks));
                    for (const auto& [batch, head, block] : all) {
                        CHECK((batch >= 0 && batch < batches && head >= 0 && head < heads && block >= 0 &&
                               block < blocks));
                    }
                }
            }
        }
    }
}

TEST_CASE("orders sections as drawn in the header: the last one longest first, the one before shortest first") {
    const auto all = all_coords({1, 4, 3, 2}, {.seqlen_q = 0, .seqlen_k = 0}, 128);
    const std::vector<coord> drawn{{0, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 1}, {0, 0, 2}, {0, 1, 2},
                                   {0, 2, 2}, {0, 3, 2}, {0, 2, 1}, {0, 3, 1}, {0, 2, 0}, {0, 3, 0}};
    CHECK(all == drawn);
}

TEST_CASE("varlen: visits every block with queries once, the longest of a sequence first") {
    const std::vector<std::vector<int>> cases{{0, 70, 70, 71, 271},         {0, 0},     {0, 1}, {0, 128, 256},
                                              {0, 127, 128, 129, 400, 400}, {5, 6, 300}};
    for (const auto& starts : cases) {
        for (const int rows : {64, 128, 192}) {
            const int sequences = int(starts.size()) - 1, heads = 3;
            const attention_seqlens lengths{0, 0, nullptr, starts.data(), starts.data()};
            const attention_tile_scheduler scheduler{
                sequences, heads, attention_tile_scheduler::varlen_blocks(starts.back(), sequences, rows), 0};
            std::set<coord> expected;
            for (int i = 0; i < sequences; ++i) {
                for (int first = 0; first < starts[i + 1] - starts[i]; first += rows) {
                    for (int head = 0; head < heads; ++head) expected.emplace(i, head, first / rows);
                }
            }
            std::vector<coord> found;
            for (const coord& one : all_coords(scheduler, lengths, rows)) {
                const auto& [sequence, head, block] = one;
                // Unused indices give a block behind the last.
                if (block * rows < starts[sequence + 1] - starts[sequence]) found.push_back(one);
            }
            CHECK(found.size() == expected.size());
            CHECK(std::set<coord>(found.begin(), found.end()) == expected);
            for (std::size_t i = heads; i < found.size(); ++i) {
                const auto& [before, before_head, before_block] = found[i - heads];
                const auto& [sequence, head, block] = found[i];
                if (before == sequence && before_head == head) CHECK(block == before_block - 1);
            }
        }
    }
}
