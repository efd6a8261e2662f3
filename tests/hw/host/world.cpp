// A program compiled without nvcc that uses the device gets an error, never a silent fallback.
#include <doctest/doctest.h>

#include <imbrex/hw/world.hpp>

using namespace imbrex;

namespace {

struct nothing {
    static constexpr int warps = 1;
    struct arguments {};
    template <class Block, class SharedMemory>
    static void run(Block&, const arguments&, SharedMemory&) {}
};

}  // namespace

TEST_CASE("rejects the device in a program with only the host world") {
    CHECK(!device_available());
    CHECK_THROWS_WITH_AS(launch<nothing>(world::device, {1}, {}), detail::host_world_only, error);
    CHECK_THROWS_WITH_AS(world_array<float>(world::device, 4), detail::host_world_only, error);
    CHECK_NOTHROW(launch<nothing>(world::host, {1}, {}));
    CHECK_NOTHROW(launch<nothing>(world::host_checked, {1}, {}));
}
