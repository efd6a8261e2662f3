// The choices of a checked run: which simulated warp runs next, and when an asynchronous operation completes. A seed
// determines them, in the same way on every platform.
//
//   seed modulo 4   asynchronous operations complete
//   0               late: when no scope can run, or when they are waited for
//   1               at once
//   2, 3            at random
#pragma once

#include <imbrex/hw/host/random.hpp>
#include <imbrex/hw/host/state.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex::hw {

class schedule {
  public:
    explicit schedule(std::uint64_t seed) : random_(seed), policy_(static_cast<policy>(seed % 4)) {}

    bool completes_at_once() const { return policy_ == policy::eager; }

    // Whether a scope runs next, and not an operation.
    bool runs_scope(bool scopes, bool operations) {
        return scopes && (!operations || policy_ == policy::late || random_.below(2) == 0);
    }
    simulated_warp& next_of(const std::vector<simulated_warp*>& candidates) {
        return *candidates[random_.below(static_cast<int>(candidates.size()))];
    }
    std::size_t operation_of(std::size_t count) { return random_.below(static_cast<int>(count)); }

  private:
    enum class policy { late, eager, random, random_again };
    schedule_rng random_;
    policy policy_;
};

}  // namespace imbrex::hw
