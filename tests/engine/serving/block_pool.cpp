// The blocks of one cache group: reference counts and the order of reallocation.
#include "engine/serving/block_pool.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/error.hpp>

using namespace imbrex::engine;

TEST_CASE("Allocates until no block is free, and frees") {
    block_pool blocks(3);
    const int first = blocks.allocate();
    blocks.allocate();
    blocks.allocate();
    CHECK(blocks.num_free() == 0);
    CHECK(blocks.num_used() == 3);
    CHECK_THROWS_WITH_AS(blocks.allocate(), "blocks: all 3 are held; release one before allocating another",
                         imbrex::invalid_argument);
    blocks.add_reference(first);
    CHECK(blocks.ref_count(first) == 2);
    blocks.free(first);
    CHECK(blocks.num_free() == 0);
    blocks.free(first);
    CHECK(blocks.num_free() == 1);
}

TEST_CASE("Rejects a double free and blocks that do not exist") {
    block_pool blocks(2);
    const int block = blocks.allocate();
    blocks.free(block);
    CHECK_THROWS_WITH_AS(blocks.free(block), "block 0 is released more often than it was allocated",
                         imbrex::invalid_argument);
    CHECK(blocks.num_free() == 2);
    CHECK_THROWS_WITH_AS(blocks.add_reference(2), "block: 2; there are 2", imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(blocks.free(-1), "block: -1; there are 2", imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(block_pool(0), "blocks: 0; there must be at least one", imbrex::invalid_argument);
}

TEST_CASE("Reallocates blocks without content first, then the least recently used") {
    block_pool blocks(4);
    const int a = blocks.allocate(), b = blocks.allocate(), c = blocks.allocate(), plain = blocks.allocate();
    for (const int block : {a, b, c}) blocks.set_content(block, block + 10);
    for (const int block : {b, a, c, plain}) blocks.free(block);
    blocks.add_reference(a);  // used again
    blocks.free(a);
    CHECK(blocks.content(a) == a + 10);
    for (const int expected : {plain, b, c, a}) CHECK(blocks.allocate() == expected);
}
