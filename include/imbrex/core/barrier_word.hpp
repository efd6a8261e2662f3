// The 64 bits of a transaction barrier in shared memory. On the device they are the hardware's own; the host world
// packs its counters into them. Both count warps: a warp that arrives counts one, however many lanes it has.
#pragma once

#include <cstdint>

namespace imbrex {

struct alignas(8) barrier_word {
    std::uint64_t word;
};

}  // namespace imbrex
