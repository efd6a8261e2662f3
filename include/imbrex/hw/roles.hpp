// Roles: warp specialization of a block. A role is a scope (warp or warpgroup), a count, the registers per thread
// (setmaxnreg), and a body. Roles take the block's warps in the order given.
//
// A role of single warps still occupies whole warpgroups, with the remaining warps idle: setmaxnreg applies to a
// warpgroup, and consumer warpgroups must start at a warp number that is a multiple of four.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class Scope, int Count, int Registers, class Body>
struct role {
    static_assert(Count > 0, "imbrex: a role needs at least one scope");
    static_assert(Registers == 0 || (Registers >= 24 && Registers <= 256 && Registers % 8 == 0),
                  "imbrex: a role's registers must be 0 (leave as launched) or a multiple of 8 from 24 to 256");
    using scope = Scope;
    static constexpr int count = Count;
    static constexpr int registers = Registers;
    static constexpr int warps = (Count * Scope::warps + 3) / 4 * 4;

    const char* name;
    Body body;
};

struct warp;
struct warpgroup;

// The producer: one warp that issues loads. Hazard reports and traces show the role's name.
template <int Registers = 0, class Body>
IMBREX_KERNEL auto producer(const char* name, Body body) {
    return role<warp, 1, Registers, Body>{name, body};
}
template <int Registers = 0, class Body>
IMBREX_KERNEL auto producer(Body body) {
    return producer<Registers>("producer", body);
}

// The consumers: Count warpgroups that compute.
template <int Count, int Registers = 0, class Body>
IMBREX_KERNEL auto consumers(const char* name, Body body) {
    return role<warpgroup, Count, Registers, Body>{name, body};
}
template <int Count, int Registers = 0, class Body>
IMBREX_KERNEL auto consumers(Body body) {
    return consumers<Count, Registers>("consumer", body);
}

// Count single warps with another task.
template <int Count, int Registers = 0, class Body>
IMBREX_KERNEL auto single_warps(const char* name, Body body) {
    return role<warp, Count, Registers, Body>{name, body};
}

// The number of warps of a block with these roles.
template <class... Roles>
inline constexpr int warps_of_roles = (0 + ... + Roles::warps);

// Registers per thread at launch: an equal share of the SM's register file, in allocation granularity.
template <int Threads>
inline constexpr int registers_at_launch = 65536 / Threads / 8 * 8 > 255 ? 255 : 65536 / Threads / 8 * 8;

// Whether the registers that some roles release cover those that the others request. Otherwise setmaxnreg.inc would
// block forever.
template <int Threads, class... Roles>
inline constexpr bool registers_suffice =
    (0 + ... + (Roles::warps * (Roles::registers == 0 ? registers_at_launch<Threads> : Roles::registers))) <=
    registers_at_launch<Threads>*(Threads / 32);

}  // namespace imbrex
