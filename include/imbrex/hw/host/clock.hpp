// Vector clocks: which actions of other actors a scope is ordered after. Actors are the scopes of a cluster, the
// barriers (a completed phase is one tick) and the groups of asynchronous operations of each scope (a group is one
// tick).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex::hw {

class vector_clock {
  public:
    std::uint32_t operator[](int actor) const {
        return static_cast<std::size_t>(actor) < ticks_.size() ? ticks_[actor] : 0;
    }
    void set(int actor, std::uint32_t tick) {
        grow(actor);
        ticks_[actor] = tick;
    }
    void raise(int actor, std::uint32_t tick) {
        grow(actor);
        if (ticks_[actor] < tick) ticks_[actor] = tick;
    }
    void join(const vector_clock& other) {
        if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
        for (std::size_t i = 0; i < other.ticks_.size(); ++i) {
            if (ticks_[i] < other.ticks_[i]) ticks_[i] = other.ticks_[i];
        }
    }
    void clear() { ticks_.clear(); }

  private:
    void grow(int actor) {
        if (static_cast<std::size_t>(actor) >= ticks_.size()) ticks_.resize(actor + 1);
    }
    std::vector<std::uint32_t> ticks_;
};

}  // namespace imbrex::hw
