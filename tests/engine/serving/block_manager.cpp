// The block manager: block tables of cache groups, windows, copy-on-write, prefix caching.
#include "engine/serving/block_manager.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/error.hpp>

#include <numeric>
#include <vector>

using namespace imbrex::engine;

namespace {

using ints = std::vector<int>;

ints counting(int count, int from = 0) {
    ints tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), from);
    return tokens;
}

// The table of a sequence that has computed these tokens; cached blocks are shared.
block_table compute(block_manager& blocks, const ints& tokens) {
    std::vector<block_copy> copies;
    block_table table = blocks.start(blocks.find_cached_prefix(tokens), copies);
    CHECK(copies.empty());
    REQUIRE(blocks.extend(table, static_cast<int>(tokens.size())));
    blocks.cache_full_blocks(table, tokens, static_cast<int>(tokens.size()));
    blocks.free_behind_windows(table, static_cast<int>(tokens.size()));
    return table;
}

ints found(const block_manager& blocks, const ints& tokens, std::size_t group = 0) {
    return blocks.find_cached_prefix(tokens).table.groups[group];
}

int free_blocks(const block_manager& blocks, int group = 0) {
    return blocks.pool(group).num_free();
}

std::uint64_t same_hash(std::uint64_t, std::span<const int>) {
    return 1;
}

// All tokens, and a window of 5.
std::vector<cache_group> full_and_window(int blocks, int window_blocks) {
    return {{.blocks = blocks, .window = 0, .block_bytes = 100},
            {.blocks = window_blocks, .window = 5, .block_bytes = 300}};
}

}  // namespace

TEST_CASE("Rejects invalid sizes") {
    CHECK_THROWS_WITH_AS(block_manager(0), "blocks: 0; there must be at least one", imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(block_manager(1, 0), "block_size: 0; a block must hold at least one token",
                         imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(block_manager(std::vector<cache_group>{}), "cache groups: none; there must be at least one",
                         imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(block_manager(std::vector{cache_group{.blocks = 1, .window = -1}}),
                         "window: -1; it must be 0 (all tokens) or more", imbrex::invalid_argument);
}

TEST_CASE("Extends a table as far as there are free blocks") {
    block_manager blocks(3, 4);
    block_table table;
    CHECK(blocks.capacity(table) == 0);
    CHECK(blocks.extend(table, 5));
    CHECK(blocks.capacity(table) == 8);
    CHECK_FALSE(blocks.extend(table, 13));
    CHECK(blocks.capacity(table) == 12);
    CHECK(free_blocks(blocks) == 0);
    blocks.free(table);
    CHECK(table.empty());
    CHECK(free_blocks(blocks) == 3);
}

TEST_CASE("Finds cached prefixes in full blocks, never the last token") {
    block_manager blocks(8, 4);
    const ints table = compute(blocks, counting(12)).groups[0];
    CHECK(found(blocks, counting(14)) == table);
    CHECK(blocks.find_cached_prefix(counting(14)).tokens == 12);
    CHECK(found(blocks, counting(13)) == table);
    // All twelve tokens are cached, but the last one must be recomputed to get logits.
    CHECK(found(blocks, counting(12)) == ints(table.begin(), table.begin() + 2));
    CHECK(found(blocks, counting(4)).empty());
    CHECK(found(blocks, counting(5)) == ints{table[0]});
    CHECK(found(blocks, {}).empty());

    ints other = counting(14);
    other[5] = 99;
    CHECK(found(blocks, other) == ints{table[0]});
    CHECK(found(blocks, counting(14, 4)).empty());  // tokens of the second block, but at the start
}

TEST_CASE("Allocated but uncomputed blocks are no hits") {
    block_manager blocks(4, 4);
    block_table table;
    blocks.extend(table, 8);
    CHECK(found(blocks, counting(9)).empty());
    blocks.cache_full_blocks(table, counting(9), 3);
    CHECK(found(blocks, counting(9)).empty());
    blocks.cache_full_blocks(table, counting(9), 6);
    CHECK(found(blocks, counting(9)) == ints{table.groups[0][0]});
    blocks.cache_full_blocks(table, counting(9), 8);
    CHECK(found(blocks, counting(9)) == table.groups[0]);
}

TEST_CASE("Reallocates the least recently used block first, tails before heads") {
    block_manager blocks(4, 2);
    block_table old = compute(blocks, {1, 2, 3, 4}), young = compute(blocks, {5, 6, 7, 8});
    const ints old_blocks = old.groups[0], young_blocks = young.groups[0];
    blocks.free(old);
    blocks.free(young);
    CHECK(free_blocks(blocks) == 4);
    CHECK(found(blocks, {1, 2, 3, 4, 0}) == old_blocks);
    block_table other;
    blocks.extend(other, 2);
    CHECK(other.groups[0] == ints{old_blocks[1]});
    CHECK(found(blocks, {1, 2, 3, 4, 0}) == ints{old_blocks[0]});
    blocks.extend(other, 4);
    CHECK(other.groups[0] == ints{old_blocks[1], old_blocks[0]});
    CHECK(found(blocks, {5, 6, 7, 8, 0}) == young_blocks);
}

TEST_CASE("Shares one block after two sequences computed the same tokens") {
    block_manager blocks(4, 2);
    const ints tokens{1, 2, 3, 4};
    block_table first, second;
    blocks.extend(first, 4);
    blocks.extend(second, 4);
    blocks.cache_full_blocks(first, tokens, 4);
    blocks.cache_full_blocks(second, tokens, 4);
    CHECK(first.groups == second.groups);
    CHECK(blocks.pool(0).ref_count(first.groups[0][0]) == 2);
    CHECK(free_blocks(blocks) == 2);
    blocks.free(first);
    CHECK(free_blocks(blocks) == 2);
    blocks.free(second);
    CHECK(free_blocks(blocks) == 4);
}

TEST_CASE("Compares tokens and prefix, not only the hash") {
    block_manager blocks(8, 2, prefix_caching::on, same_hash);
    const ints table = compute(blocks, {1, 2, 3, 4}).groups[0];
    CHECK(found(blocks, {5, 6, 0}).empty());
    CHECK(found(blocks, {1, 2, 5, 6, 0}) == ints{table[0]});
    const ints other = compute(blocks, {7, 8}).groups[0];
    CHECK(found(blocks, {7, 8, 3, 4, 0}) == other);  // 3 4 is cached, but after 1 2
    CHECK(found(blocks, {1, 2, 3, 4, 0}) == table);
    CHECK(found(blocks, {3, 4, 0}).empty());
}

TEST_CASE("A fork shares blocks, and copies the one that it writes") {
    block_manager blocks(8, 4);
    block_table parent = compute(blocks, counting(10));
    const auto shared = blocks.shared_prefix(parent, 9);
    REQUIRE(shared);
    CHECK(shared->tokens == 9);
    CHECK(blocks.can_start(*shared, 10, 4));
    CHECK_FALSE(blocks.can_start(*shared, 10, 5));
    std::vector<block_copy> copies;
    block_table child = blocks.start(*shared, copies);
    REQUIRE(copies.size() == 1);
    CHECK(copies[0].from == parent.groups[0][2]);
    CHECK(copies[0].to == child.groups[0][2]);
    CHECK(child.groups[0][1] == parent.groups[0][1]);
    CHECK(blocks.pool(0).ref_count(copies[0].from) == 2);  // referenced until the copy is made
    blocks.release(copies[0]);
    CHECK(blocks.pool(0).ref_count(copies[0].from) == 1);
    // Both can be cached behind the shared prefix, with different tokens.
    ints other = counting(12);
    other[11] = 99;
    REQUIRE(blocks.extend(parent, 12));
    blocks.cache_full_blocks(parent, counting(12), 12);
    blocks.cache_full_blocks(child, other, 12);
    CHECK(found(blocks, counting(13)) == parent.groups[0]);
    other.push_back(0);
    CHECK(found(blocks, other) == child.groups[0]);
}

TEST_CASE("A window keeps the blocks that the next token and a fork need") {
    block_manager blocks(full_and_window(8, 4), 4);
    block_table table;
    REQUIRE(blocks.extend(table, 14));
    blocks.free_behind_windows(table, 8);  // the next token is 8: it sees 4 ... 8, and a fork's 3 ... 7
    CHECK(table.groups[1][0] != no_block);
    blocks.free_behind_windows(table, 9);
    CHECK(table.groups[1][0] == no_block);
    CHECK(table.groups[1][1] != no_block);
    blocks.free_behind_windows(table, 14);
    CHECK(table.groups[1][1] == no_block);
    CHECK(table.groups[1][2] != no_block);
    CHECK(free_blocks(blocks, 1) == 2);
    CHECK(free_blocks(blocks, 0) == 4);
    CHECK(blocks.used_bytes() == 4 * 100 + 2 * 300);
    CHECK(blocks.bytes() == 8 * 100 + 4 * 300);
    CHECK(blocks.extend(table, 18));  // in a freed block
    CHECK(blocks.capacity(table) == 20);
    blocks.free(table);
    CHECK(blocks.used_bytes() == 0);
}

TEST_CASE("A prefix is a hit if each group has the blocks that the next token needs") {
    block_manager blocks(full_and_window(16, 8), 4);
    block_table table = compute(blocks, counting(20));
    const block_table held = table;
    const cached_prefix known = blocks.find_cached_prefix(counting(21));
    CHECK(known.tokens == 20);
    CHECK(known.table.groups[0] == held.groups[0]);
    CHECK(known.table.groups[1] == ints{no_block, no_block, no_block, held.groups[1][3], held.groups[1][4]});
    // Blocks behind the window are free, and still found.
    CHECK(blocks.find_cached_prefix(counting(9)).tokens == 8);
    // They are reused first. Then the window of 12 tokens lacks a block, that of 20 does not.
    block_table other;
    REQUIRE(blocks.extend(other, 6 * 4));
    CHECK(blocks.find_cached_prefix(counting(13)).tokens == 0);
    CHECK(blocks.find_cached_prefix(counting(21)).tokens == 20);
    CHECK(blocks.can_start(known, 21, 0) == false);  // the window needs a block, and none is free
    blocks.free(other);
    CHECK(blocks.can_start(known, 21, 5));
}

TEST_CASE("A fork of a sequence that has left its window behind finds no shared prefix") {
    block_manager blocks(full_and_window(16, 8), 4);
    const block_table parent = compute(blocks, counting(20));
    CHECK(blocks.shared_prefix(parent, 19));
    CHECK(blocks.shared_prefix(parent, 17));
    CHECK_FALSE(blocks.shared_prefix(parent, 16));
    CHECK(blocks.shared_prefix(parent, 19)->table.groups[1][2] == no_block);
}

TEST_CASE("With windows alone a prefix outlives its first blocks") {
    block_manager blocks(std::vector{cache_group{.blocks = 4, .window = 5}}, 4);
    block_table table;
    ints tokens = counting(48);
    for (int computed = 4; computed <= 48; computed += 4) {
        REQUIRE(blocks.extend(table, computed));
        blocks.cache_full_blocks(table, tokens, computed);
        blocks.free_behind_windows(table, computed);
    }
    CHECK(blocks.max_sequence_tokens() > 1000000);
    tokens.push_back(0);
    CHECK(blocks.find_cached_prefix(tokens).tokens == 48);
    blocks.free(table);
    CHECK(blocks.find_cached_prefix(tokens).tokens == 48);
}

TEST_CASE("The longest sequence that fits") {
    CHECK(block_manager(3, 4).max_sequence_tokens() == 13);
    CHECK(block_manager(full_and_window(5, 3), 4).max_sequence_tokens() == 21);
    CHECK(block_manager(full_and_window(5, 2), 4).max_sequence_tokens() == 9);  // too few for a window
}

TEST_CASE("Without prefix caching no block is found or shared") {
    block_manager blocks(4, 2, prefix_caching::off);
    const block_table first = compute(blocks, {1, 2, 3}), second = compute(blocks, {1, 2, 3});
    CHECK(first.groups[0][0] != second.groups[0][0]);
    CHECK_FALSE(blocks.is_cached(0, first.groups[0][0]));
    CHECK(found(blocks, {1, 2, 3}).empty());
}

TEST_CASE("The hash depends on tokens, their order and the prefix") {
    const ints ab{1, 2}, ba{2, 1};
    CHECK(chain_hash(0, ab) != chain_hash(0, ba));
    CHECK(chain_hash(0, ab) != chain_hash(1, ab));
    CHECK(chain_hash(0, ab) == chain_hash(0, ints{1, 2}));
}
