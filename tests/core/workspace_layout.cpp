// Buffers of a workspace.
#include <imbrex/core/workspace_layout.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace imbrex;

TEST_CASE("buffers follow each other at multiples of 256 bytes") {
    workspace_layout buffers;
    CHECK(buffers.bytes() == 0);
    CHECK(buffers.add(1) == 0);
    CHECK(buffers.add(256) == 256);
    CHECK(buffers.add(0) == 512);
    CHECK(buffers.add(257) == 512);
    CHECK(buffers.bytes() == 1024);
}

TEST_CASE("requires an aligned workspace if the layout is not empty") {
    alignas(256) char memory[512];
    const auto refusal = [](const workspace_layout& buffers, const void* given) -> std::string {
        try {
            buffers.require_given(given, "workspace");
        } catch (const invalid_argument& refused) {
            return refused.what();
        }
        return "no error";
    };
    workspace_layout buffers;
    CHECK(refusal(buffers, nullptr) == "no error");
    buffers.add(300);
    CHECK(refusal(buffers, memory) == "no error");
    CHECK(refusal(buffers, nullptr).find("; 512 bytes at a multiple of 256 are needed") != std::string::npos);
    CHECK(refusal(buffers, memory + 16).find("workspace: ") == 0);
}
