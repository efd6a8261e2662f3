// The parts a block's warps play. A role is a scope (a warp or a warpgroup), how many of them play it, how many
// registers each thread should have, and what they do. Roles take the block's hardware warps in the order given.
//
// A role of single warps still occupies whole warpgroups, its spare warps idle: the hardware reallocates registers a
// warpgroup at a time, and consumers must start at a warp whose number is a multiple of four.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

template <class Scope, int Count, int Registers, class Body>
struct role {
    static_assert(Count > 0, "imbrex: a role must be played by at least one scope");
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

// One warp that feeds the others.
template <int Registers = 0, class Body>
IMBREX_KERNEL auto producer(Body body) {
    return role<warp, 1, Registers, Body>{"producer", body};
}

// Count warpgroups that compute.
template <int Count, int Registers = 0, class Body>
IMBREX_KERNEL auto consumers(Body body) {
    return role<warpgroup, Count, Registers, Body>{"consumer", body};
}

// Count single warps of any other calling.
template <int Count, int Registers = 0, class Body>
IMBREX_KERNEL auto single_warps(const char* name, Body body) {
    return role<warp, Count, Registers, Body>{name, body};
}

// How many warps a block needs for these roles.
template <class... Roles>
inline constexpr int warps_of_roles = (0 + ... + Roles::warps);

// Registers a thread has at launch: an equal share of the multiprocessor's, in the steps the hardware allocates.
template <int Threads>
inline constexpr int registers_at_launch = 65536 / Threads / 8 * 8 > 255 ? 255 : 65536 / Threads / 8 * 8;

// Whether what some roles give back is enough for what the others take: if not, those would wait for ever.
template <int Threads, class... Roles>
inline constexpr bool registers_suffice =
    (0 + ... + (Roles::warps * (Roles::registers == 0 ? registers_at_launch<Threads> : Roles::registers))) <=
    registers_at_launch<Threads>*(Threads / 32);

}  // namespace imbrex
