// A small seeded generator (splitmix64), the same on every platform, so that a seed replays its schedule everywhere.
#pragma once

#include <imbrex/core/splitmix64.hpp>

#include <cstdint>

namespace imbrex::hw {

class schedule_rng {
  public:
    explicit schedule_rng(std::uint64_t seed) : state_(seed * splitmix64_step + 0x1234567u) {}

    std::uint64_t next() { return splitmix64(state_ += splitmix64_step); }
    int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }

  private:
    std::uint64_t state_;
};

}  // namespace imbrex::hw
