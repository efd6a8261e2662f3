// Named barriers get distinct numbers at compile time, none of them used by the block or its warpgroups.
#include <imbrex/tile/barrier.hpp>

#include <doctest/doctest.h>

#include <set>

using namespace imbrex;

namespace {

struct turn {
    static constexpr int count = 2;
};
struct done {};
struct many {
    static constexpr int count = 4;
};
struct alone {};

using barriers = named_barriers<turn, done, many>;

static_assert(barriers::first_free == 9 && barriers::available == 7);
static_assert(barriers::count_of<turn>() == 2 && barriers::count_of<done>() == 1 && barriers::count_of<many>() == 4);
static_assert(barriers::of<turn>().id == 9);
static_assert(barriers::of<turn>(1).id == 10);
static_assert(barriers::of<done>().id == 11);
static_assert(barriers::of<many>().id == 12);
static_assert(barriers::of<many>(3).id == 15);  // the hardware's last
static_assert(named_barriers<alone>::of<alone>().id == 9);
static_assert(named_barriers<done, alone>::of<alone>().id == 10);  // the order of the list is that of the numbers

TEST_CASE("named barriers have distinct numbers, none of them the block's or a warpgroup's") {
    std::multiset<int> ids;
    for (int i = 0; i < turn::count; ++i) ids.insert(barriers::of<turn>(i).id);
    ids.insert(barriers::of<done>().id);
    for (int i = 0; i < many::count; ++i) ids.insert(barriers::of<many>(i).id);
    CHECK(ids.size() == 7);
    for (const int id : ids) {
        CHECK(ids.count(id) == 1);
        CHECK(id >= 9);
        CHECK(id <= 15);
    }
}

TEST_CASE("a transaction barrier has the 64 bits of the hardware's mbarrier") {
    CHECK(sizeof(transaction_barrier) == 8);
    CHECK(alignof(transaction_barrier) == 8);
}

}  // namespace
