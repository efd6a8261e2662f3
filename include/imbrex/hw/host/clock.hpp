// Vector clocks: which actions of other actors a scope is ordered after. Actors are the scopes of a cluster, the
// barriers (a completed phase is one tick) and the groups of asynchronous operations of each scope (a group is one
// tick). Actors are numbered within their cluster. What a scope knows of other clusters, through atomic operations on
// global memory, is a grid_clock; it is empty for most kernels.
#pragma once

#include <algorithm>
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
    bool empty() const { return ticks_.empty(); }

  private:
    void grow(int actor) {
        if (static_cast<std::size_t>(actor) >= ticks_.size()) ticks_.resize(actor + 1);
    }
    std::vector<std::uint32_t> ticks_;
};

// The clocks of one cluster as another scope knows them: for ordinary accesses, and for the async proxy.
struct cluster_clocks {
    vector_clock seen, async_seen;

    void join(const cluster_clocks& other) {
        seen.join(other.seen);
        async_seen.join(other.async_seen);
    }
};

// What a scope knows of clusters, by their number in the stream, and which kernels of the stream it knows to be
// complete.
class grid_clock {
  public:
    bool empty() const { return clusters_.empty() && kernels_.empty(); }

    const cluster_clocks* find(int cluster) const {
        const auto at = place_of(cluster);
        return at != clusters_.end() && at->number == cluster ? &at->clocks : nullptr;
    }
    cluster_clocks& of(int cluster) {
        const auto at = place_of(cluster);
        if (at != clusters_.end() && at->number == cluster) return clusters_[at - clusters_.begin()].clocks;
        return clusters_.insert(at, {cluster, {}})->clocks;
    }

    bool knows_complete(int kernel) const { return kernels_[kernel] > 0; }
    void kernel_is_complete(int kernel) { kernels_.raise(kernel, 1); }

    void join(const grid_clock& other) {
        for (const entry& one : other.clusters_) of(one.number).join(one.clocks);
        kernels_.join(other.kernels_);
    }
    template <class F>
    void for_each(F f) const {
        for (const entry& one : clusters_) f(one.number, one.clocks);
    }

  private:
    struct entry {
        int number;
        cluster_clocks clocks;
    };
    std::vector<entry>::const_iterator place_of(int cluster) const {
        return std::lower_bound(clusters_.begin(), clusters_.end(), cluster,
                                [](const entry& one, int number) { return one.number < number; });
    }

    std::vector<entry> clusters_;  // by number
    vector_clock kernels_;
};

}  // namespace imbrex::hw
