// Page-locked host memory: content, moves of the owner, copies to and from both worlds.
#include <imbrex/hw/pinned_memory.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <utility>

#include "worlds.hpp"

using namespace imbrex;
using namespace imbrex_test;

TEST_CASE("Pinned memory travels to a world and back") {
    for (const world where : worlds()) {
        const world_stream stream(where);
        pinned_memory from(where, 1000), to(where, 1000);
        const world_memory there(where, 1000);
        for (std::size_t i = 0; i < 1000; ++i) from.at()[i] = static_cast<std::byte>(i * 7);
        copy_bytes(where, there.at(), from.at(), 1000, stream.get());
        copy_bytes(where, to.at(100), there.at(100), 900, stream.get());
        stream.wait();
        CHECK(std::memcmp(from.at(100), to.at(100), 900) == 0);
        pinned_memory moved(std::move(from));
        CHECK(moved.bytes() == 1000);
        CHECK(from.bytes() == 0);  // NOLINT: what is left of it
        to = std::move(moved);
        CHECK(to.at()[3] == std::byte{21});
        CHECK(pinned_memory().bytes() == 0);
    }
}
