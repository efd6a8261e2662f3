// Roles: their warps, and whether their registers are available.
#include <imbrex/hw/world.hpp>

#include <doctest/doctest.h>

using namespace imbrex;

namespace {

struct nothing {};
template <class Scope, int Count, int Registers>
using some = role<Scope, Count, Registers, nothing>;

TEST_CASE("single warps take whole warpgroups") {
    CHECK(warps_of_roles<some<warp, 1, 0>> == 4);
    CHECK(warps_of_roles<some<warp, 5, 0>> == 8);
    CHECK(warps_of_roles<some<warp, 3, 24>, some<warpgroup, 2, 240>> == 12);
}

TEST_CASE("roles may take only the registers that others release") {
    // 384 threads have 168 each at launch: 504 for three threads of different roles.
    CHECK(registers_at_launch<384> == 168);
    CHECK(registers_suffice<384, some<warp, 3, 24>, some<warpgroup, 2, 240>>);
    CHECK(registers_suffice<384, some<warp, 3, 40>, some<warpgroup, 2, 232>>);
    CHECK_FALSE(registers_suffice<384, some<warp, 3, 32>, some<warpgroup, 2, 240>>);
    CHECK(registers_suffice<512, some<warp, 1, 32>, some<warpgroup, 3, 160>>);
    CHECK_FALSE(registers_suffice<512, some<warp, 1, 40>, some<warpgroup, 3, 160>>);
    // A role without a register count keeps its registers.
    CHECK(registers_suffice<256, some<warp, 1, 0>, some<warpgroup, 1, 0>>);
    CHECK_FALSE(registers_suffice<384, some<warp, 1, 0>, some<warpgroup, 2, 176>>);
    // A thread cannot have more than 255.
    CHECK(registers_at_launch<128> == 255);
}

}  // namespace
