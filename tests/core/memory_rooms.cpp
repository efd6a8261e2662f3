// Rooms of a piece of memory.
#include <imbrex/core/memory_rooms.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace imbrex;

TEST_CASE("rooms follow each other at multiples of 256 bytes") {
    memory_rooms rooms;
    CHECK(rooms.bytes() == 0);
    CHECK(rooms.add(1) == 0);
    CHECK(rooms.add(256) == 256);
    CHECK(rooms.add(0) == 512);
    CHECK(rooms.add(257) == 512);
    CHECK(rooms.bytes() == 1024);
}

TEST_CASE("memory for rooms is asked for, at a multiple of 256 bytes, where there are some") {
    alignas(256) char memory[512];
    const auto refusal = [](const memory_rooms& rooms, const void* given) -> std::string {
        try {
            rooms.require_given(given, "workspace");
        } catch (const invalid_argument& refused) {
            return refused.what();
        }
        return "nothing was refused";
    };
    memory_rooms rooms;
    CHECK(refusal(rooms, nullptr) == "nothing was refused");
    rooms.add(300);
    CHECK(refusal(rooms, memory) == "nothing was refused");
    CHECK(refusal(rooms, nullptr).find("; 512 bytes at a multiple of 256 are needed") != std::string::npos);
    CHECK(refusal(rooms, memory + 16).find("workspace: ") == 0);
}
