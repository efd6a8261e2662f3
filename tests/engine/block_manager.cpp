// Blocks: references, copies on write, and what is found again.
#include "engine/block_manager.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/error.hpp>

#include <numeric>
#include <vector>

using namespace imbrex::engine;

namespace {

std::vector<int> counting(int count, int from = 0) {
    std::vector<int> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), from);
    return tokens;
}

// A table for these tokens, all computed; what is found is shared.
std::vector<int> compute(block_manager& blocks, const std::vector<int>& tokens) {
    std::vector<int> table = blocks.find(tokens);
    for (const int block : table) blocks.share(block);
    const int found = static_cast<int>(table.size()) * blocks.block_size();
    while (static_cast<int>(table.size()) < blocks.blocks_for(static_cast<int>(tokens.size())))
        table.push_back(blocks.take());
    blocks.computed(table, tokens, found, static_cast<int>(tokens.size()));
    return table;
}

std::uint64_t same_hash(std::uint64_t, std::span<const int>) {
    return 1;
}

}  // namespace

TEST_CASE("blocks are taken until there are none, and released") {
    block_manager blocks(3, 4);
    std::vector<int> table{blocks.take(), blocks.take(), blocks.take()};
    CHECK(blocks.available() == 0);
    CHECK(blocks.used() == 3);
    CHECK_THROWS_WITH_AS(blocks.take(), "blocks: all 3 are held; one must be released before another is taken",
                         imbrex::invalid_argument);
    blocks.share(table[0]);
    blocks.release(table[0]);
    CHECK(blocks.available() == 0);
    blocks.release(table);
    CHECK(table.empty());
    CHECK(blocks.available() == 3);
}

TEST_CASE("a block released twice is refused, and stays free once") {
    block_manager blocks(2);
    const int block = blocks.take();
    blocks.release(block);
    CHECK_THROWS_WITH_AS(blocks.release(block), "block 0 is released more often than it was taken",
                         imbrex::invalid_argument);
    CHECK(blocks.available() == 2);
    CHECK_THROWS_WITH_AS(blocks.share(2), "block: 2; there are 2", imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(blocks.release(-1), "block: -1; there are 2", imbrex::invalid_argument);
}

TEST_CASE("sizes that have no meaning are refused") {
    CHECK_THROWS_WITH_AS(block_manager(0), "blocks: 0; there must be at least one", imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(block_manager(1, 0), "block_size: 0; a block must hold at least one token",
                         imbrex::invalid_argument);
}

TEST_CASE("the same tokens from the beginning are found, in whole blocks, and never the last token") {
    block_manager blocks(8, 4);
    const std::vector<int> table = compute(blocks, counting(12));
    CHECK(blocks.find(counting(14)) == table);
    CHECK(blocks.find(counting(13)) == table);
    // All twelve are there; but without the last one computed again there would be nothing to sample from.
    CHECK(blocks.find(counting(12)) == std::vector(table.begin(), table.begin() + 2));
    CHECK(blocks.find(counting(4)).empty());
    CHECK(blocks.find(counting(5)) == std::vector{table[0]});
    CHECK(blocks.find({}).empty());

    std::vector<int> other = counting(14);
    other[5] = 99;
    CHECK(blocks.find(other) == std::vector{table[0]});
    CHECK(blocks.find(counting(14, 4)).empty());  // the second block's tokens, but at the beginning
}

TEST_CASE("what is allocated but not computed is not found") {
    block_manager blocks(4, 4);
    std::vector<int> table{blocks.take(), blocks.take()};
    CHECK(blocks.find(counting(9)).empty());
    blocks.computed(table, counting(9), 0, 3);
    CHECK(blocks.find(counting(9)).empty());
    blocks.computed(table, counting(9), 3, 6);
    CHECK(blocks.find(counting(9)) == std::vector{table[0]});
    blocks.computed(table, counting(9), 6, 8);
    CHECK(blocks.find(counting(9)) == table);
}

TEST_CASE("free blocks keep their content until they are taken, the longest unused first, ends before beginnings") {
    block_manager blocks(4, 2);
    std::vector<int> old = compute(blocks, {1, 2, 3, 4});
    std::vector<int> young = compute(blocks, {5, 6, 7, 8});
    const std::vector<int> old_blocks = old, young_blocks = young;
    blocks.release(old);
    blocks.release(young);
    CHECK(blocks.available() == 4);
    CHECK(blocks.find(std::vector{1, 2, 3, 4, 0}) == old_blocks);
    CHECK(blocks.take() == old_blocks[1]);
    CHECK(blocks.find(std::vector{1, 2, 3, 4, 0}) == std::vector{old_blocks[0]});
    CHECK(blocks.take() == old_blocks[0]);
    CHECK(blocks.find(std::vector{5, 6, 7, 8, 0}) == young_blocks);
    blocks.share(young_blocks[0]);  // in use again: so the other is taken
    CHECK(blocks.take() == young_blocks[1]);
    CHECK(blocks.available() == 0);
    CHECK(blocks.find(std::vector{5, 6, 7, 8, 0}) == std::vector{young_blocks[0]});
}

TEST_CASE("blocks without a content are taken before those that may be found") {
    block_manager blocks(3, 2);
    std::vector<int> known = compute(blocks, {1, 2});
    const int plain = blocks.take();
    const int found = known[0];
    blocks.release(known);
    blocks.release(plain);
    CHECK(blocks.take() == plain);
    CHECK(blocks.find(std::vector{1, 2, 3}) == std::vector{found});
}

TEST_CASE("two that computed the same share one block afterwards") {
    block_manager blocks(4, 2);
    std::vector<int> first{blocks.take(), blocks.take()}, second{blocks.take(), blocks.take()};
    const std::vector<int> tokens{1, 2, 3, 4};
    blocks.computed(first, tokens, 0, 4);
    blocks.computed(second, tokens, 0, 4);
    CHECK(first == second);
    CHECK(blocks.references(first[0]) == 2);
    CHECK(blocks.available() == 2);
    blocks.release(first);
    CHECK(blocks.available() == 2);
    blocks.release(second);
    CHECK(blocks.available() == 4);
}

TEST_CASE("a hash alone is not trusted: neither other tokens nor another beginning is a hit") {
    block_manager blocks(8, 2, prefix_caching::on, same_hash);
    const std::vector<int> table = compute(blocks, {1, 2, 3, 4});
    CHECK(blocks.find(std::vector{5, 6, 0}).empty());
    CHECK(blocks.find(std::vector{1, 2, 5, 6, 0}) == std::vector{table[0]});
    const std::vector<int> other = compute(blocks, {7, 8});
    CHECK(blocks.find(std::vector{7, 8, 3, 4, 0}) == other);  // 3 4 is there, but after 1 2
    CHECK(blocks.find(std::vector{1, 2, 3, 4, 0}) == table);
    CHECK(blocks.find(std::vector{3, 4, 0}).empty());
}

TEST_CASE("a content whose beginning was replaced in the same block is not found") {
    block_manager blocks(3, 2, prefix_caching::on, same_hash);
    std::vector<int> table = compute(blocks, {1, 2, 3, 4});
    const int beginning = table[0], end = table[1];
    blocks.release(beginning);  // in the wrong order, so that the beginning goes first
    blocks.release(end);
    std::vector<int> filler{blocks.take(), blocks.take()};
    CHECK(filler[1] == beginning);
    std::vector<int> other{filler[1]};
    blocks.computed(other, std::vector{5, 6}, 0, 2);
    CHECK(blocks.find(std::vector{5, 6, 3, 4, 0}) == std::vector{beginning});
}

TEST_CASE("a block alone is written in place; one that others hold or may find is copied") {
    block_manager blocks(4, 2);
    int mine = blocks.take();
    const int before = mine;
    CHECK_FALSE(blocks.make_writable(mine));
    CHECK(mine == before);

    blocks.share(mine);
    int forked = mine;
    const auto copy = blocks.make_writable(forked);
    REQUIRE(copy);
    CHECK(copy->from == before);
    CHECK(copy->to == forked);
    CHECK(forked != before);
    CHECK(blocks.references(before) == 2);  // the copy holds it until it is made
    CHECK(blocks.references(forked) == 1);
    blocks.release(copy->from);
    CHECK_FALSE(blocks.make_writable(mine));

    std::vector<int> full = compute(blocks, {1, 2});
    const int found = full[0];
    CHECK(blocks.has_content(found));
    REQUIRE(blocks.make_writable(full[0]));
    CHECK(full[0] != found);
    CHECK(blocks.find(std::vector{1, 2, 0}) == std::vector{found});
}

TEST_CASE("a block that can be found must not get another content") {
    block_manager blocks(2, 2);
    std::vector<int> table = compute(blocks, {1, 2});
    CHECK_THROWS_AS(blocks.computed(table, std::vector{3, 4}, 0, 2), imbrex::invalid_argument);
}

TEST_CASE("without prefix caching nothing is found or shared") {
    block_manager blocks(4, 2, prefix_caching::off);
    std::vector<int> first = compute(blocks, {1, 2, 3}), second = compute(blocks, {1, 2, 3});
    CHECK(first[0] != second[0]);
    CHECK_FALSE(blocks.has_content(first[0]));
    CHECK(blocks.find(std::vector{1, 2, 3}).empty());
}

TEST_CASE("the hash depends on order, tokens and what was before") {
    const std::vector<int> ab{1, 2}, ba{2, 1};
    CHECK(chain_hash(0, ab) != chain_hash(0, ba));
    CHECK(chain_hash(0, ab) != chain_hash(1, ab));
    CHECK(chain_hash(0, ab) == chain_hash(0, std::vector{1, 2}));
}
