// pinned_staging: the host buffer is sent to the world and fetched back.
#include <imbrex/hw/pinned_staging.hpp>
#include <imbrex/hw/world_stream.hpp>

#include "worlds.hpp"

#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

TEST_CASE("a staging buffer is sent, fetched and moved") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const world_stream stream(where);
        pinned_staging one(where, 3 * sizeof(int)), other;
        CHECK(one.bytes() == 12);
        CHECK((one.at() == one.host_pointer()) == (where != world::device));
        for (int i = 0; i < 3; ++i) one.host_pointer<int>()[i] = i + 5;
        one.upload(12, stream.get());
        other = std::move(one);
        stream.wait();
        for (int i = 0; i < 3; ++i) other.host_pointer<int>()[i] = -1;
        if (where != world::device) continue;  // the same memory
        other.download(8, stream.get());
        stream.wait();
        CHECK(std::vector<int>(other.host_pointer<int>(), other.host_pointer<int>() + 3) == std::vector<int>{5, 6, -1});
        CHECK(other.host_pointer<int>(4)[0] == 6);
    }
}

TEST_CASE("host buffers of a staging buffer take turns with one buffer in the world") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        if (where != world::device) continue;  // the same memory
        const world_stream stream(where);
        const pinned_staging both(where, 2 * sizeof(int), 2);
        for (const int number : {0, 1}) both.host_pointer<int>(sizeof(int), number)[0] = 7 + number;
        both.upload(8, stream.get(), 1);
        both.download(8, stream.get(), 0);
        stream.wait();
        CHECK(both.host_pointer<int>(4, 0)[0] == 8);
        CHECK(both.host_pointer<int>(4)[0] == 8);
        CHECK(both.host_pointer<int>(4, 1)[0] == 8);
        both.host_pointer<int>(4, 0)[0] = 5;
        CHECK(both.host_pointer<int>(4, 1)[0] == 8);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("rejects a staging buffer of the device in a program with only the host world") {
    CHECK(error_message_of([] { pinned_staging(world::device, 4); }) == imbrex::detail::host_world_only);
}
#endif
