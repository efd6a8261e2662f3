// The 64 bits of a transaction barrier (mbarrier) in shared memory. On the device they are the hardware's mbarrier
// object; the host world packs its counters into them. Both count warps: a warp arrives once for all of its lanes.
#pragma once

#include <cstdint>

namespace imbrex {

struct alignas(8) barrier_word {
    std::uint64_t word;
};

}  // namespace imbrex
