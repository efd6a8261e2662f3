#include "engine/cache/host_level.hpp"

#include <imbrex/core/error.hpp>

#include <cstddef>

namespace imbrex::engine {

host_level::host_level(const std::vector<int>& slots, cache_policy policy) {
    for (const int count : slots) {
        require(count >= 0, "host slots: ", count, "; a cache group must have 0 (none) or more");
        level made{.slots = std::vector<slot_state>(static_cast<std::size_t>(count)), .order = eviction_order(policy)};
        for (int slot = count; slot-- > 0;) made.free.push_back(slot);
        groups_.push_back(std::move(made));
    }
}

void host_level::fill(int group, int slot, std::int64_t node) {
    level& own = of(group);
    require(!own.free.empty() && own.free.back() == slot, "slot ", slot, " of group ", group, " is not the free one");
    own.free.pop_back();
    own.slots[static_cast<std::size_t>(slot)].node = node;
    own.order.add(slot);
}

void host_level::clear(int group, int slot, bool evicted) {
    level& own = of(group);
    own.slots[static_cast<std::size_t>(slot)].node = 0;
    own.free.push_back(slot);
    if (evicted) {
        own.order.evict(slot);
    } else {
        own.order.remove(slot);
    }
}

}  // namespace imbrex::engine
