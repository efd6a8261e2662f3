// A program without nvcc that asks for the device is told so; nothing is quietly left out.
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

TEST_CASE("the device is refused by a program that has the host world alone") {
    CHECK(!device_available());
    CHECK_THROWS_WITH_AS(launch<nothing>(world::device, {1}, {}), detail::host_world_only, error);
    CHECK_THROWS_WITH_AS(world_array<float>(world::device, 4), detail::host_world_only, error);
    CHECK_NOTHROW(launch<nothing>(world::host, {1}, {}));
    CHECK_NOTHROW(launch<nothing>(world::host_checked, {1}, {}));
}
