// Which entry leaves first: LRU and LFU with ageing. Slots of host memory.
#include "engine/cache/eviction_order.hpp"

#include "engine/cache/host_level.hpp"
#include "engine/support.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace imbrex::engine::test {

namespace {

using ids = std::vector<eviction_order::id>;

eviction_order::id first(const eviction_order& order) {
    return order.first([](eviction_order::id) { return true; });
}

ids evict_all(eviction_order& order) {
    ids all;
    while (!order.empty()) {
        all.push_back(first(order));
        order.evict(all.back());
    }
    return all;
}

eviction_order used(cache_policy policy, const ids& uses) {
    eviction_order order(policy);
    for (const int entry : {1, 2, 3, 4}) order.add(entry);
    for (const eviction_order::id entry : uses) order.use(entry);
    return order;
}

}  // namespace

TEST_CASE("LRU: the one that was used longest ago leaves first") {
    eviction_order order = used(cache_policy::lru, {2, 1, 2});
    CHECK(order.first([](eviction_order::id entry) { return entry != 3; }) == 4);
    CHECK(order.first([](eviction_order::id) { return false; }) == -1);
    order.remove(4);
    CHECK(evict_all(order) == ids{3, 1, 2});
}

TEST_CASE("LFU: the one that was used least often leaves first, the oldest of those") {
    eviction_order order = used(cache_policy::lfu, {2, 2, 3, 1, 1, 1});
    CHECK(evict_all(order) == ids{4, 3, 2, 1});
}

TEST_CASE("LFU: an old favourite ages with every eviction") {
    eviction_order order(cache_policy::lfu);
    order.add(0);
    for (int i = 0; i < 3; ++i) order.use(0);
    int rounds = 0;
    for (order.add(1); first(order) != 0; order.add(++rounds + 1)) {
        order.evict(first(order));
        REQUIRE(rounds < 10);
    }
    CHECK(rounds == 3);
}

TEST_CASE("Slots: free ones first, then those in order that are not pinned") {
    host_level host({2, 0}, cache_policy::lru);
    const auto any = [](int) { return true; };
    CHECK_FALSE(host.find_slot(1, any));
    const int a = *host.find_slot(0, any);
    host.fill(0, a, 7);
    const int b = *host.find_slot(0, any);
    CHECK(b != a);
    host.fill(0, b, 8);
    CHECK(host.used(0) == 2);
    CHECK(host.find_slot(0, any) == a);
    host.use(0, a);
    CHECK(host.find_slot(0, any) == b);
    CHECK(host.find_slot(0, [&](int slot) { return slot != b; }) == a);
    host.pin(0, b);
    CHECK(host.find_slot(0, any) == a);
    host.pin(0, a);
    CHECK_FALSE(host.find_slot(0, any));
    host.unpin(0, a);
    CHECK(host.at(0, a).node == 7);
    host.clear(0, a, true);
    CHECK(host.used(0) == 1);
    CHECK(host.find_slot(0, any) == a);
    check_error_message("host slots: -1; a cache group must have 0 (none) or more",
                        [] { host_level({-1}, cache_policy::lru); });
}

}  // namespace imbrex::engine::test
