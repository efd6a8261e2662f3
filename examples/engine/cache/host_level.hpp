// The slots of host memory: which block of which prefix each holds, and which one a new entry replaces. It moves no
// bytes: the runner does (serving/block_moves.hpp). A pinned slot takes part in moves of the current step and is not
// replaced.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cache/eviction_order.hpp"

namespace imbrex::engine {

class host_level {
  public:
    // The number of slots of each cache group.
    host_level(const std::vector<int>& slots, cache_policy policy);

    struct slot_state {
        std::int64_t node = 0;  // of the prefix tree; 0: the slot is free
        int pins = 0;
    };
    const slot_state& at(int group, int slot) const { return of(group).slots[static_cast<std::size_t>(slot)]; }
    int slots(int group) const { return static_cast<int>(of(group).slots.size()); }
    int used(int group) const { return slots(group) - static_cast<int>(of(group).free.size()); }

    // A free slot, or the first in order of eviction that `admits` accepts and that is not pinned: drop its entry
    // before the slot is used. Nothing if there is none.
    template <class Condition>
    std::optional<int> find_slot(int group, const Condition& admits) const {
        const level& own = of(group);
        if (!own.free.empty()) return own.free.back();
        const auto found = own.order.first([&](std::int64_t slot) {
            return own.slots[static_cast<std::size_t>(slot)].pins == 0 && admits(static_cast<int>(slot));
        });
        return found < 0 ? std::nullopt : std::optional(static_cast<int>(found));
    }

    // The free slot now holds the block of this node.
    void fill(int group, int slot, std::int64_t node);
    // A hit.
    void use(int group, int slot) { of(group).order.use(slot); }
    void pin(int group, int slot) { ++of(group).slots[static_cast<std::size_t>(slot)].pins; }
    void unpin(int group, int slot) { --of(group).slots[static_cast<std::size_t>(slot)].pins; }
    // The slot is free again; `evicted` to make room.
    void clear(int group, int slot, bool evicted);

  private:
    struct level {
        std::vector<slot_state> slots{};
        std::vector<int> free{};
        eviction_order order;
    };
    const level& of(int group) const { return groups_[static_cast<std::size_t>(group)]; }
    level& of(int group) { return groups_[static_cast<std::size_t>(group)]; }

    std::vector<level> groups_;
};

}  // namespace imbrex::engine
