// A small seeded generator (splitmix64), the same on every platform, so that a seed replays its schedule everywhere.
#pragma once

#include <cstdint>

namespace imbrex::hw {

class schedule_rng {
  public:
    explicit schedule_rng(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}

    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }

  private:
    std::uint64_t state_;
};

}  // namespace imbrex::hw
