// The host world's use of the 64 bits of a transaction barrier.
#pragma once

#include <imbrex/core/barrier_word.hpp>

#include <bit>
#include <cstdint>

namespace imbrex::hw {

struct barrier_counters {
    std::int32_t bytes;     // expected and not landed
    std::uint8_t expected;  // warps per phase
    std::uint8_t pending;   // warps still to arrive in this phase
    std::uint8_t parity;    // of the current phase
    std::uint8_t live;      // set by initialisation

    static constexpr std::uint8_t live_mark = 0xb5;

    static barrier_counters of(const barrier_word& word) { return std::bit_cast<barrier_counters>(word.word); }
    void put(barrier_word& word) const { word.word = std::bit_cast<std::uint64_t>(*this); }

    // Completes the phase if both counts are met.
    bool turn() {
        if (pending != 0 || bytes != 0) return false;
        pending = expected;
        parity ^= 1;
        return true;
    }
};
static_assert(sizeof(barrier_counters) == sizeof(barrier_word));

}  // namespace imbrex::hw
