#include "serving/fleet_routing.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace bench {

using imbrex::require;

namespace {

std::uint64_t hash_of(std::uint64_t value) {  // splitmix64
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// Points of the replicas on a ring. Adding a replica moves the keys that it gets, and no others.
class hash_ring {
  public:
    hash_ring(int replicas, const bounded_load& bounded) : bounded_(bounded) {
        constexpr std::uint64_t points_per_replica = 64;
        for (int replica = 0; replica < replicas; ++replica) {
            for (std::uint64_t i = 0; i < points_per_replica; ++i)
                points_.emplace_back(hash_of(static_cast<std::uint64_t>(replica) * points_per_replica + i), replica);
        }
        std::ranges::sort(points_);
    }

    int find(std::uint64_t key, std::int64_t tokens, std::span<const std::int64_t> outstanding) const {
        const std::int64_t all = std::accumulate(outstanding.begin(), outstanding.end(), tokens);
        const double mean = static_cast<double>(all) / static_cast<double>(outstanding.size());
        const double most = std::max(bounded_.bound * mean, static_cast<double>(bounded_.least_bound));
        const auto first = std::ranges::lower_bound(points_, std::pair(hash_of(~key), 0)) - points_.begin();
        for (std::size_t i = 0; i < points_.size(); ++i) {
            const int replica = points_[(static_cast<std::size_t>(first) + i) % points_.size()].second;
            if (static_cast<double>(outstanding[static_cast<std::size_t>(replica)] + tokens) <= most) return replica;
        }
        return static_cast<int>(std::ranges::min_element(outstanding) - outstanding.begin());
    }

  private:
    bounded_load bounded_;
    std::vector<std::pair<std::uint64_t, int>> points_;
};

routing_policy least_loaded() {
    return [turn = std::size_t{0}](const routed_request&, std::span<const std::int64_t> outstanding) mutable {
        std::size_t best = turn % outstanding.size();
        for (std::size_t i = 0; i < outstanding.size(); ++i) {
            const std::size_t at = (turn + i) % outstanding.size();
            if (outstanding[at] < outstanding[best]) best = at;
        }
        turn = best + 1;
        return static_cast<int>(best);
    };
}

}  // namespace

std::vector<std::string> routing_policies() {
    return {"round-robin", "least-loaded", "prefix-hash", "session-hash"};
}

routing_policy make_policy(const std::string& name, int replicas, const bounded_load& bounded) {
    require(replicas >= 1, "replicas: ", replicas, "; there must be at least one");
    require(bounded.bound >= 1, "bound: ", bounded.bound, "; it must be at least 1, the mean load");
    if (name == "round-robin") {
        return [turn = 0, replicas](const routed_request&, std::span<const std::int64_t>) mutable {
            return std::exchange(turn, (turn + 1) % replicas);
        };
    }
    if (name == "least-loaded") return least_loaded();
    const bool by_prefix = name == "prefix-hash";
    require(by_prefix || name == "session-hash", "policy: ", name,
            "; it must be round-robin, least-loaded, prefix-hash or session-hash");
    return [ring = hash_ring(replicas, bounded), by_prefix](const routed_request& one,
                                                            std::span<const std::int64_t> outstanding) {
        // Negative numbers: keys of system prompts.
        const std::uint64_t key =
            by_prefix && one.system >= 0 ? ~static_cast<std::uint64_t>(one.system) : one.conversation;
        return ring.find(key, one.tokens, outstanding);
    };
}

}  // namespace bench
