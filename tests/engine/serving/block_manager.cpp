// The block manager: reference counts, copy-on-write, prefix caching.
#include "engine/serving/block_manager.hpp"

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

// A block table of computed tokens; cached blocks are shared.
std::vector<int> compute(block_manager& blocks, const std::vector<int>& tokens) {
    std::vector<int> table = blocks.find_cached_prefix(tokens);
    for (const int block : table) blocks.add_reference(block);
    const int found = static_cast<int>(table.size()) * blocks.block_size();
    while (static_cast<int>(table.size()) < blocks.blocks_for(static_cast<int>(tokens.size())))
        table.push_back(blocks.allocate());
    blocks.cache_full_blocks(table, tokens, found, static_cast<int>(tokens.size()));
    return table;
}

std::uint64_t same_hash(std::uint64_t, std::span<const int>) {
    return 1;
}

}  // namespace

TEST_CASE("Allocates until no block is free, and frees") {
    block_manager blocks(3, 4);
    std::vector<int> table{blocks.allocate(), blocks.allocate(), blocks.allocate()};
    CHECK(blocks.num_free_blocks() == 0);
    CHECK(blocks.num_used_blocks() == 3);
    CHECK_THROWS_WITH_AS(blocks.allocate(), "blocks: all 3 are held; release one before allocating another",
                         imbrex::invalid_argument);
    blocks.add_reference(table[0]);
    blocks.free(table[0]);
    CHECK(blocks.num_free_blocks() == 0);
    blocks.free(table);
    CHECK(table.empty());
    CHECK(blocks.num_free_blocks() == 3);
}

TEST_CASE("Rejects a double free") {
    block_manager blocks(2);
    const int block = blocks.allocate();
    blocks.free(block);
    CHECK_THROWS_WITH_AS(blocks.free(block), "block 0 is released more often than it was allocated",
                         imbrex::invalid_argument);
    CHECK(blocks.num_free_blocks() == 2);
    CHECK_THROWS_WITH_AS(blocks.add_reference(2), "block: 2; there are 2", imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(blocks.free(-1), "block: -1; there are 2", imbrex::invalid_argument);
}

TEST_CASE("Rejects invalid sizes") {
    CHECK_THROWS_WITH_AS(block_manager(0), "blocks: 0; there must be at least one", imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(block_manager(1, 0), "block_size: 0; a block must hold at least one token",
                         imbrex::invalid_argument);
}

TEST_CASE("Finds cached prefixes in full blocks, never the last token") {
    block_manager blocks(8, 4);
    const std::vector<int> table = compute(blocks, counting(12));
    CHECK(blocks.find_cached_prefix(counting(14)) == table);
    CHECK(blocks.find_cached_prefix(counting(13)) == table);
    // All twelve tokens are cached, but the last one must be recomputed to get logits.
    CHECK(blocks.find_cached_prefix(counting(12)) == std::vector(table.begin(), table.begin() + 2));
    CHECK(blocks.find_cached_prefix(counting(4)).empty());
    CHECK(blocks.find_cached_prefix(counting(5)) == std::vector{table[0]});
    CHECK(blocks.find_cached_prefix({}).empty());

    std::vector<int> other = counting(14);
    other[5] = 99;
    CHECK(blocks.find_cached_prefix(other) == std::vector{table[0]});
    CHECK(blocks.find_cached_prefix(counting(14, 4)).empty());  // tokens of the second block, but at the start
}

TEST_CASE("Allocated but uncomputed blocks are no hits") {
    block_manager blocks(4, 4);
    std::vector<int> table{blocks.allocate(), blocks.allocate()};
    CHECK(blocks.find_cached_prefix(counting(9)).empty());
    blocks.cache_full_blocks(table, counting(9), 0, 3);
    CHECK(blocks.find_cached_prefix(counting(9)).empty());
    blocks.cache_full_blocks(table, counting(9), 3, 6);
    CHECK(blocks.find_cached_prefix(counting(9)) == std::vector{table[0]});
    blocks.cache_full_blocks(table, counting(9), 6, 8);
    CHECK(blocks.find_cached_prefix(counting(9)) == table);
}

TEST_CASE("Reallocates the least recently used block first, tails before heads") {
    block_manager blocks(4, 2);
    std::vector<int> old = compute(blocks, {1, 2, 3, 4});
    std::vector<int> young = compute(blocks, {5, 6, 7, 8});
    const std::vector<int> old_blocks = old, young_blocks = young;
    blocks.free(old);
    blocks.free(young);
    CHECK(blocks.num_free_blocks() == 4);
    CHECK(blocks.find_cached_prefix(std::vector{1, 2, 3, 4, 0}) == old_blocks);
    CHECK(blocks.allocate() == old_blocks[1]);
    CHECK(blocks.find_cached_prefix(std::vector{1, 2, 3, 4, 0}) == std::vector{old_blocks[0]});
    CHECK(blocks.allocate() == old_blocks[0]);
    CHECK(blocks.find_cached_prefix(std::vector{5, 6, 7, 8, 0}) == young_blocks);
    blocks.add_reference(young_blocks[0]);  // in use again: the other is reallocated
    CHECK(blocks.allocate() == young_blocks[1]);
    CHECK(blocks.num_free_blocks() == 0);
    CHECK(blocks.find_cached_prefix(std::vector{5, 6, 7, 8, 0}) == std::vector{young_blocks[0]});
}

TEST_CASE("Reallocates blocks without content first") {
    block_manager blocks(3, 2);
    std::vector<int> known = compute(blocks, {1, 2});
    const int plain = blocks.allocate();
    const int found = known[0];
    blocks.free(known);
    blocks.free(plain);
    CHECK(blocks.allocate() == plain);
    CHECK(blocks.find_cached_prefix(std::vector{1, 2, 3}) == std::vector{found});
}

TEST_CASE("Shares one block after two sequences computed the same tokens") {
    block_manager blocks(4, 2);
    std::vector<int> first{blocks.allocate(), blocks.allocate()}, second{blocks.allocate(), blocks.allocate()};
    const std::vector<int> tokens{1, 2, 3, 4};
    blocks.cache_full_blocks(first, tokens, 0, 4);
    blocks.cache_full_blocks(second, tokens, 0, 4);
    CHECK(first == second);
    CHECK(blocks.ref_count(first[0]) == 2);
    CHECK(blocks.num_free_blocks() == 2);
    blocks.free(first);
    CHECK(blocks.num_free_blocks() == 2);
    blocks.free(second);
    CHECK(blocks.num_free_blocks() == 4);
}

TEST_CASE("Compares tokens and prefix, not only the hash") {
    block_manager blocks(8, 2, prefix_caching::on, same_hash);
    const std::vector<int> table = compute(blocks, {1, 2, 3, 4});
    CHECK(blocks.find_cached_prefix(std::vector{5, 6, 0}).empty());
    CHECK(blocks.find_cached_prefix(std::vector{1, 2, 5, 6, 0}) == std::vector{table[0]});
    const std::vector<int> other = compute(blocks, {7, 8});
    CHECK(blocks.find_cached_prefix(std::vector{7, 8, 3, 4, 0}) == other);  // 3 4 is cached, but after 1 2
    CHECK(blocks.find_cached_prefix(std::vector{1, 2, 3, 4, 0}) == table);
    CHECK(blocks.find_cached_prefix(std::vector{3, 4, 0}).empty());
}

TEST_CASE("A block whose prefix was replaced is no hit") {
    block_manager blocks(3, 2, prefix_caching::on, same_hash);
    std::vector<int> table = compute(blocks, {1, 2, 3, 4});
    const int beginning = table[0], end = table[1];
    blocks.free(beginning);  // in the wrong order, so that the first block is reallocated first
    blocks.free(end);
    std::vector<int> filler{blocks.allocate(), blocks.allocate()};
    CHECK(filler[1] == beginning);
    std::vector<int> other{filler[1]};
    blocks.cache_full_blocks(other, std::vector{5, 6}, 0, 2);
    CHECK(blocks.find_cached_prefix(std::vector{5, 6, 3, 4, 0}) == std::vector{beginning});
}

TEST_CASE("Writes an exclusive block in place; copies a shared or cached one") {
    block_manager blocks(4, 2);
    int mine = blocks.allocate();
    const int before = mine;
    CHECK_FALSE(blocks.copy_on_write(mine));
    CHECK(mine == before);

    blocks.add_reference(mine);
    int forked = mine;
    const auto copy = blocks.copy_on_write(forked);
    REQUIRE(copy);
    CHECK(copy->from == before);
    CHECK(copy->to == forked);
    CHECK(forked != before);
    CHECK(blocks.ref_count(before) == 2);  // referenced until the copy is made
    CHECK(blocks.ref_count(forked) == 1);
    blocks.free(copy->from);
    CHECK_FALSE(blocks.copy_on_write(mine));

    std::vector<int> full = compute(blocks, {1, 2});
    const int found = full[0];
    CHECK(blocks.is_cached(found));
    REQUIRE(blocks.copy_on_write(full[0]));
    CHECK(full[0] != found);
    CHECK(blocks.find_cached_prefix(std::vector{1, 2, 0}) == std::vector{found});
}

TEST_CASE("Rejects new content for a cached block") {
    block_manager blocks(2, 2);
    std::vector<int> table = compute(blocks, {1, 2});
    CHECK_THROWS_AS(blocks.cache_full_blocks(table, std::vector{3, 4}, 0, 2), imbrex::invalid_argument);
}

TEST_CASE("Without prefix caching no block is found or shared") {
    block_manager blocks(4, 2, prefix_caching::off);
    std::vector<int> first = compute(blocks, {1, 2, 3}), second = compute(blocks, {1, 2, 3});
    CHECK(first[0] != second[0]);
    CHECK_FALSE(blocks.is_cached(first[0]));
    CHECK(blocks.find_cached_prefix(std::vector{1, 2, 3}).empty());
}

TEST_CASE("The hash depends on tokens, their order and the prefix") {
    const std::vector<int> ab{1, 2}, ba{2, 1};
    CHECK(chain_hash(0, ab) != chain_hash(0, ba));
    CHECK(chain_hash(0, ab) != chain_hash(1, ab));
    CHECK(chain_hash(0, ab) == chain_hash(0, std::vector{1, 2}));
}
