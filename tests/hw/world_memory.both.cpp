// world_memory: initialised to zero, written and read from the host, and moved.
#include <imbrex/hw/world_memory.hpp>

#include "worlds.hpp"

#include <cstdint>
#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

TEST_CASE("world memory starts as zero, is written, read and moved") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const std::vector<int> some{1, 2, 3}, zeros(100, 0);
        std::vector<int> found(100, -1);
        world_memory one(where, found.size() * sizeof(int));
        CHECK(one.bytes() == 400);
        CHECK(reinterpret_cast<std::uintptr_t>(one.at()) % world_memory::alignment == 0);
        one.read(0, found.data(), 400);
        CHECK(found == zeros);
        one.write(40, some.data(), 12);
        const int* const place = one.at<int>(40);
        world_memory other = std::move(one), none(where, 0);
        CHECK(none.at() != nullptr);
        none = std::move(other);
        CHECK(none.at<int>(40) == place);
        none.read(36, found.data(), 20);
        CHECK(std::vector<int>(found.begin(), found.begin() + 5) == std::vector<int>{0, 1, 2, 3, 0});
    }
}

TEST_CASE("copies within world memory") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const std::vector<int> some{1, 2, 3, 4, 5, 6};
        std::vector<int> found(6, -1);
        world_memory one(where, 24);
        one.write(0, some.data(), 24);
        one.copy_within(16, 4, 8);
        one.copy_within(0, 12, 0);
        one.read(0, found.data(), 24);
        CHECK(found == std::vector<int>{1, 2, 3, 4, 2, 3});
    }
}

#if !defined(__CUDACC__)
TEST_CASE("rejects device memory in a program with only the host world") {
    CHECK(error_message_of([] { world_memory(world::device, 4); }) == imbrex::detail::host_world_only);
}
#endif
