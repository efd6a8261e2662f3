// Which entry of a cache level leaves first. LRU: the one that was used longest ago. LFU: the one that was used least
// often; a new entry starts at the frequency of the last one that left, so that old favourites age (LFU with dynamic
// ageing). Equal frequencies: the one that was used longest ago.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <unordered_map>

namespace imbrex::engine {

enum class cache_policy { lru, lfu };

class eviction_order {
  public:
    using id = std::int64_t;

    explicit eviction_order(cache_policy policy) : policy_(policy) {}

    void add(id entry) { place(entry, 1); }
    // A hit.
    void use(id entry) {
        const place_of& old = places_.at(entry);
        const std::int64_t uses = old.uses + 1;
        order_.erase(key_of(entry, old));
        place(entry, uses);
    }
    void remove(id entry) {
        const auto found = places_.find(entry);
        order_.erase(key_of(entry, found->second));
        places_.erase(found);
    }
    // The same for an entry that leaves as the first in order: later entries count from its frequency.
    void evict(id entry) {
        age_ = places_.at(entry).priority;
        remove(entry);
    }

    bool empty() const { return order_.empty(); }
    // The first in order that the condition admits, or -1.
    template <class Condition>
    id first(const Condition& admits) const {
        for (const key& each : order_) {
            if (admits(std::get<2>(each))) return std::get<2>(each);
        }
        return -1;
    }

  private:
    struct place_of {
        std::int64_t uses = 0, priority = 0, time = 0;
    };
    using key = std::tuple<std::int64_t, std::int64_t, id>;  // priority, time, entry

    static key key_of(id entry, const place_of& at) { return {at.priority, at.time, entry}; }
    void place(id entry, std::int64_t uses) {
        const place_of at{.uses = uses, .priority = policy_ == cache_policy::lfu ? age_ + uses : 0, .time = ++time_};
        places_[entry] = at;
        order_.insert(key_of(entry, at));
    }

    cache_policy policy_;
    std::int64_t time_ = 0, age_ = 0;
    std::set<key> order_;
    std::unordered_map<id, place_of> places_;
};

}  // namespace imbrex::engine
